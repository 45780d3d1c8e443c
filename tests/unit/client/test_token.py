"""What a client is recognised by: fixed, in a file that changes, or fetched; and no error gives it away."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from lakepact.client import Place, Unauthorized, Unavailable
from lakepact.client.caller import Caller
from lakepact.client.http import Answer, Lost, NotSent
from lakepact.client.token import Credential, FixedToken, TokenInFile, given_token, source_of, text_of
from lakepact.errors import InvalidSetting
from tests.unit.client.script import OK, StillMachine, document, refusal

OLD, NEW = "lakepact_old", "lakepact_new"


class Server:
    """Takes one token, and gives out another one for each credential that it is shown."""

    def __init__(self, good: str = OLD) -> None:
        self.good = good
        self.given = 0
        self.seen: list[str | None] = []
        self.forms: list[dict[str, str]] = []
        self.failure: Answer | Exception | None = None

    def exchange(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, timeout_s: float | None = None
    ) -> Answer:
        if target.endswith("/oauth/tokens"):
            if isinstance(self.failure, Exception):
                raise self.failure
            if self.failure is not None:
                return self.failure
            self.forms.append(dict(parse_qsl((body or b"").decode())))
            self.given += 1
            self.good = f"given{self.given}"
            return document({"access_token": self.good, "token_type": "bearer", "expires_in": 100})
        self.seen.append(headers.get("Authorization"))
        if headers.get("Authorization") == f"Bearer {self.good}":
            return OK
        return refusal(401, "NotAuthorizedException", "who?")

    def close(self) -> None: ...


def test_a_fixed_token_is_sent_and_refused_once(tmp_path: Path) -> None:
    server = Server()
    caller = Caller(server, StillMachine(), tokens=FixedToken(OLD))
    caller.read("config")
    server.good = NEW
    with pytest.raises(Unauthorized) as refused:
        caller.inside("main").change("POST", "{prefix}/namespaces", body={})
    assert server.seen == [f"Bearer {OLD}"] * 2
    assert OLD not in str(refused.value)


def test_a_file_is_read_again_when_the_token_in_it_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(OLD + "\n")
    server = Server()
    caller = Caller(server, StillMachine(), tokens=source_of(f"@{file}"))
    caller.read("config")
    server.good = NEW
    (tmp_path / "other").write_text(NEW)
    (tmp_path / "other").rename(file)
    caller.read("config")
    assert server.seen == [f"Bearer {OLD}", f"Bearer {NEW}"]


def test_a_token_that_is_refused_just_before_its_file_changes_is_followed_by_the_new_one(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(OLD)
    server = Server(NEW)

    class Late(TokenInFile):
        def newer_than(self, used: str) -> str | None:
            file.write_text(NEW)
            return super().newer_than(used)

    Caller(server, StillMachine(), tokens=Late(str(file))).read("config")
    assert server.seen == [f"Bearer {OLD}", f"Bearer {NEW}"]


def test_a_file_without_a_token_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text(" \n")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for name, why in (("none", "No such file"), ("empty", "no token"), ("bytes", "not text")):
        with pytest.raises(InvalidSetting, match=why) as caught:
            source_of(f"@{tmp_path / name}").current()
        assert name in str(caught.value)


@pytest.mark.parametrize("text", ["lakepact_…", "lakepact_a b", "lakepact_a\nb", "lakepact_ä"])
def test_a_token_that_no_header_takes_is_refused_without_being_shown(text: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(text, encoding="utf-8")
    for given in (text, f"@{tmp_path / 'file'}"):
        with pytest.raises(InvalidSetting, match="Copy the whole token") as caught:
            text_of(given)
        assert "lakepact_" not in str(caught.value)


def test_a_credential_is_exchanged_and_exchanged_again_before_its_token_expires() -> None:
    server, machine = Server(), StillMachine()
    source = Credential("id:sec:ret", server, "/v1/oauth/tokens", machine)
    caller = Caller(server, machine, tokens=source)
    for _ in range(3):
        caller.read("config")
    assert server.forms == [
        {"grant_type": "client_credentials", "client_id": "id", "client_secret": "sec:ret", "scope": "catalog"}
    ]
    machine.now += 80
    caller.read("config")
    assert (server.given, server.seen[-1]) == (2, "Bearer given2")
    # Revoked, restarted, whatever: a refused token is replaced and the request sent again.
    server.good = "something else"
    caller.read("config")
    assert server.seen[-2:] == ["Bearer given2", "Bearer given3"]


def test_a_whole_token_may_stand_for_both_parts_of_a_credential() -> None:
    server = Server()
    Credential("lakepact_whole", server, "/v1/oauth/tokens", StillMachine()).current()
    assert server.forms[0]["client_secret"] == "lakepact_whole"
    assert "client_id" not in server.forms[0]


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (NotSent("no connection"), Unavailable),
        (Lost("gone"), Unavailable),
        (Answer(503), Unavailable),
        (Answer(429), Unavailable),
        (Answer(401, b'{"error": "invalid_client", "error_description": "wrong"}'), Unauthorized),
        (Answer(200, b"not json"), Unauthorized),
    ],
)
def test_a_credential_that_gets_no_token_says_why_and_not_what_it_is(
    failure: Answer | Exception, error: type[Exception]
) -> None:
    server = Server()
    server.failure = failure
    caller = Caller(server, StillMachine(), tokens=Credential("id:s3cret", server, "/v1/oauth/tokens", StillMachine()))
    with pytest.raises(error, match="access token") as caught:
        caller.read("config")
    assert "s3cret" not in str(caught.value)


def test_the_environment_gives_a_token_or_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("LAKEPACT_TOKEN", "LAKEPACT_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    assert given_token(None) is None
    assert text_of(None) is None
    monkeypatch.setenv("LAKEPACT_TOKEN_FILE", str(tmp_path / "token"))
    assert given_token(None) == f"@{tmp_path / 'token'}"
    monkeypatch.setenv("LAKEPACT_TOKEN", OLD)
    assert given_token(None) == OLD
    assert given_token(NEW) == NEW


def test_a_place_does_not_show_its_secrets() -> None:
    place = Place("http://here", "main", token="t0ken", headers={"X": "h3ader"}, credential="cr3dential")
    assert not {"t0ken", "h3ader", "cr3dential"} & set(repr(place).replace("'", " ").split())
