"""Requests and responses are plain values, and a body that is not JSON is refused in words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lakepact.errors import InvalidRequest
from lakepact.limits import JSON_DEPTH, JSON_MEMBERS, JSON_VALUES, Limit, LimitExceeded
from lakepact.server.http import BadBody, BadQuery, Request, error_response, headers_of, json_response


def request(**given: Any) -> Request:
    plain: dict[str, Any] = {
        "method": "POST",
        "raw_path": "/v1/config",
        "params": {},
        "segments": ("v1", "config"),
        "query_string": "",
        "headers": {},
        "body": b"",
        "id": "r-1",
    }
    return Request(**{**plain, **given})


def test_a_header_is_found_in_any_case_and_the_first_one_counts() -> None:
    found = request(headers=headers_of([(b"if-none-match", b'"a"'), (b"if-none-match", b'"b"')]))
    assert found.header("If-None-Match") == '"a"'
    assert found.header("ETag") is None


def test_the_query_is_decoded_and_the_first_value_counts() -> None:
    found = request(query_string="parent=a%1Fb&pageToken=&parent=c&name=x+y")
    assert found.query == {"parent": "a\x1fb", "pageToken": "", "name": "x y"}
    assert request().query == {}


@pytest.mark.parametrize("query_string", ["a=%ff", "&".join("a=1" for _ in range(101))])
def test_a_query_that_cannot_be_read_is_refused(query_string: str) -> None:
    with pytest.raises(BadQuery):
        _ = request(query_string=query_string).query


def test_a_body_is_read_as_json_with_64_bit_numbers_exact() -> None:
    assert request(body=b'{"id": 9223372036854775807}').json() == {"id": 2**63 - 1}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "no body"),
        (b"{", "not JSON"),
        (b'{"a": NaN}', "not JSON"),
        (b"[1e999]", "not JSON"),
        (b'"\xff"', "not JSON"),
        (b'"\\ud800"', "not JSON"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_a_body_that_is_not_json_is_refused(body: bytes, message: str) -> None:
    with pytest.raises(BadBody, match=message) as refusal:
        request(body=body).json()
    assert isinstance(refusal.value, InvalidRequest)


@pytest.mark.parametrize(
    ("body", "limit"),
    [
        (b"[" * (JSON_DEPTH.most + 1) + b"]" * (JSON_DEPTH.most + 1), JSON_DEPTH),
        (b'{"a":' * 500 + b"1" + b"}" * 500, JSON_DEPTH),
        (b"[" + b"1," * JSON_VALUES.most + b"1]", JSON_VALUES),
        (b"{" + b",".join(b'"%d":1' % number for number in range(JSON_MEMBERS.most + 1)) + b"}", JSON_MEMBERS),
    ],
    ids=["lists", "objects", "values", "members"],
)
def test_a_body_that_exceeds_a_limit_is_refused_with_its_name(body: bytes, limit: Limit) -> None:
    with pytest.raises(LimitExceeded, match=limit.name):
        request(body=body).json()


def test_a_wide_body_is_not_a_deep_one() -> None:
    assert len(request(body=b"[" + b"[]," * 10_000 + b"[]]").json()) == 10_001


def test_an_error_has_the_form_of_the_specification() -> None:
    response = error_response(404, "NoSuchTableException", "no such table", ((b"X-A", b"b"),))
    assert json.loads(response.body) == {
        "error": {"message": "no such table", "type": "NoSuchTableException", "code": 404}
    }
    assert (response.status, response.headers) == (404, ((b"X-A", b"b"),))


def test_a_json_response_is_bytes() -> None:
    assert json_response({"a": 1}).body == b'{"a":1}'
