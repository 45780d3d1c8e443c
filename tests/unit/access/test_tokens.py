"""Tokens, statements and claims as values: what is kept, what is taken, and what never passes for something else."""

from __future__ import annotations

import secrets
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakepact.access.claims import BadClaims, Expected, claim_at, recognised
from lakepact.access.principal import Principal
from lakepact.access.secrets import (
    Given,
    Secret,
    TokenId,
    hash_of,
    key_of_token,
    new_id,
    new_secret,
    parse,
    parse_client,
    text_of,
    token_id,
)
from lakepact.access.signed import SigningKey, key_id_of, sign, verify
from lakepact.errors import InvalidRequest, Unreadable
from lakepact.kernel.keys import check_key

KEY = SigningKey("k1", b"s" * 32)
SECRET = new_secret(secrets.randbits(256))
TOKEN = Given(
    new_id(secrets.randbits(80)),
    "loader",
    "acme",
    frozenset({"a", "b"}),
    False,
    1_000,
    None,
    (Secret(1, hash_of(SECRET)),),
)


@given(st.integers(0, 2**80 - 1), st.integers(0, 2**256 - 1))
def test_a_token_is_found_again_in_its_text_and_its_id_is_a_key(id_bits: int, secret_bits: int) -> None:
    id, secret = new_id(id_bits), new_secret(secret_bits)
    assert parse(text_of(id, secret)) == (id, secret)
    assert parse_client(id, secret) == parse_client("", text_of(id, secret)) == (id, secret)
    assert token_id(id) == token_id(text_of(id, secret)) == id
    assert check_key(key_of_token(id), 512) == f"lakepact/tokens/{id}"


@given(st.text(max_size=100))
def test_whatever_else_there_is_is_no_token(text: str) -> None:
    assert parse(text) is None
    assert parse_client(text, text) is None
    assert key_id_of(text, "access") is None


def test_t_auth_8_what_is_kept_is_read_back_and_has_no_secret_in_it() -> None:
    value = TOKEN.to_json()
    assert Given.of(TOKEN.id, value) == TOKEN
    assert SECRET not in str(value) and SECRET not in repr(TOKEN)
    assert TOKEN.principal == Principal("loader", "acme", frozenset({"a", "b"}))


@pytest.mark.parametrize("damage", [{"format": 2}, {"secrets": None}, {"groups": 1}, {"expires_ms": "x"}])
def test_a_cell_that_is_not_understood_lets_nobody_in(damage: dict[str, Any]) -> None:
    with pytest.raises(Unreadable, match="revoke it"):
        Given.of(TOKEN.id, {**TOKEN.to_json(), **damage})


def test_rotation_keeps_two_secrets_at_most() -> None:
    second, third = "b" * 52, "c" * 52
    once = TOKEN.rotated(hash_of(second), 2_000, 500)
    twice = once.rotated(hash_of(third), 2_100, 500)
    assert [one.number for one in twice.secrets] == [3, 2]
    assert twice.matching(SECRET, 2_100) is None
    assert twice.matching(second, 2_599) is not None
    assert twice.matching(second, 2_600) is None
    assert twice.matching(third, 10**15) is not None
    assert (once.secret(1, 2_499) is not None, once.secret(1, 2_500)) == (True, None)


def test_t_auth_5_a_statement_is_for_one_purpose_and_one_key() -> None:
    text = sign(KEY, "access", {"tid": "x"})
    assert verify(KEY, "access", text) == {"tid": "x"}
    assert verify(KEY, "session", text) is None
    assert verify(SigningKey("k1", b"t" * 32), "access", text) is None
    assert verify(SigningKey("k2", b"s" * 32), "access", text) is None
    assert "s" * 32 not in repr(KEY)


@given(st.integers(0, 200), st.characters(codec="ascii"))
def test_a_statement_with_any_letter_changed_is_none(place: int, letter: str) -> None:
    text = sign(KEY, "access", {"tid": "abcdefgh", "exp": 1})
    place %= len(text)
    changed = text[:place] + letter + text[place + 1 :]
    assert (verify(KEY, "access", changed) is not None) == (changed == text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=5,
    ),
    st.sampled_from(["iss", "aud", "exp", "nbf", "iat", "sub", "groups"]),
)
def test_whatever_a_claim_is_it_is_recognised_or_refused(value: Any, claim: str) -> None:
    expected = Expected("i", frozenset({"a"}), admin_groups=frozenset({"admins"}))
    claims = {"iss": "i", "aud": "a", "exp": 2_000, "sub": "alice", claim: value}
    try:
        principal, until_s = recognised(claims, expected, 1_000)
    except BadClaims as error:
        assert len(str(error)) < 200
    else:
        assert principal.name and principal.name.isprintable()
        assert until_s > 1_000


def test_a_claim_is_found_by_its_name_first_and_then_by_the_way_to_it() -> None:
    claims = {"a": {"b": 1, "c": [2]}, "a.b": 3}
    assert (claim_at(claims, "a.b"), claim_at(claims, "a.c"), claim_at(claims, "a.c.d")) == (3, [2], None)
    assert claim_at(claims, "x.y") is None


def test_an_id_that_is_none_is_refused_without_being_repeated() -> None:
    with pytest.raises(InvalidRequest) as caught:
        token_id("lakepact_whatever-this-secret-is")
    assert "whatever" not in str(caught.value)
    assert TokenId("x") == "x"
