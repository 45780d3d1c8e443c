"""A path is split first and decoded afterwards; a prefix may be left out; a word is never taken for one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lakepact.server.http import Request, Response
from lakepact.server.routing import RESERVED_WORDS, BadPath, Route, Router, UnknownPath, WrongMethod
from lakepact.settings import Settings


async def handler(request: Request) -> Response:
    return Response(204)


def route(method: str, template: str) -> Route:
    return Route(method, template, f"{method} {template}", handler)


ROUTES = [
    route("GET", "/v1/config"),
    route("GET", "/livez"),
    route("GET", "/v1/{prefix}/namespaces"),
    route("POST", "/v1/{prefix}/namespaces"),
    route("GET", "/v1/{prefix}/namespaces/{namespace}/tables/{table}"),
    route("HEAD", "/v1/{prefix}/namespaces/{namespace}/tables/{table}"),
    route("POST", "/v1/{prefix}/transactions/commit"),
    route("GET", "/v1/{prefix}/transactions/{id}"),
]


def found(path: str, method: str = "GET", base_path: str = "") -> tuple[str, dict[str, str]]:
    match = Router(ROUTES, base_path=base_path).match(method, path.encode())
    return match.route.template, dict(match.params)


TABLE = "/v1/{prefix}/namespaces/{namespace}/tables/{table}"


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("/v1/main/namespaces/a/tables/t", {"prefix": "main", "namespace": "a", "table": "t"}),
        ("/v1/namespaces/a/tables/t", {"namespace": "a", "table": "t"}),
        ("/v1/main%40tx-3/namespaces/a/tables/t", {"prefix": "main@tx-3", "namespace": "a", "table": "t"}),
        ("/v1/main/namespaces/a%1Fb/tables/t", {"prefix": "main", "namespace": "a\x1fb", "table": "t"}),
        ("/v1/namespaces/a%2Fb/tables/c%2fd", {"namespace": "a/b", "table": "c/d"}),
        ("/v1/namespaces/a+b/tables/c%20d%2Be", {"namespace": "a b", "table": "c d+e"}),
        ("/v1/namespaces/%E2%82%AC/tables/\u20ac", {"namespace": "\u20ac", "table": "\u20ac"}),
        ("/v1/namespaces/a.b/tables/..", {"namespace": "a.b", "table": ".."}),
        ("/v1/namespaces/namespaces/tables/tables", {"namespace": "namespaces", "table": "tables"}),
        ("/v1/main/namespaces/config/tables/100%25", {"prefix": "main", "namespace": "config", "table": "100%"}),
    ],
)
def test_segments_are_decoded_one_by_one(path: str, params: dict[str, str]) -> None:
    assert found(path) == (TABLE, params)


def test_the_raw_segments_are_kept() -> None:
    match = Router(ROUTES).match("GET", b"/v1/namespaces/a%2Fb/tables/t")
    assert match.segments == ("v1", "namespaces", "a%2Fb", "tables", "t")
    assert match.raw_path == "/v1/namespaces/a%2Fb/tables/t"


def test_a_literal_goes_before_a_parameter() -> None:
    assert found("/v1/transactions/commit", "POST") == ("/v1/{prefix}/transactions/commit", {})
    assert found("/v1/transactions/7") == ("/v1/{prefix}/transactions/{id}", {"id": "7"})


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "",
        "/v1",
        "/v1/",
        "/v2/config",
        "/v1/config/",
        "/v1/main",
        "/v1//namespaces",
        "/v1/namespaces/a/tables/",
        "/v1/namespaces/a/tables/t/u",
        "/v1/oauth/namespaces",
        "/v1/config/namespaces",
        "/v1/tables/namespaces",
        "/v1/a/b/namespaces",
    ],
)
def test_a_path_that_no_route_has_is_unknown(path: str) -> None:
    with pytest.raises(UnknownPath):
        found(path)


@pytest.mark.parametrize(
    ("path", "method", "allowed"),
    [
        ("/v1/namespaces", "DELETE", "GET, POST"),
        ("/v1/main/namespaces/a/tables/t", "PUT", "GET, HEAD"),
        ("/v1/config", "HEAD", "GET"),
        ("/v1/transactions/commit", "GET", "POST"),
    ],
)
def test_a_known_path_says_which_methods_it_has(path: str, method: str, allowed: str) -> None:
    with pytest.raises(WrongMethod) as refusal:
        found(path, method)
    assert refusal.value.allowed == allowed


@pytest.mark.parametrize("segment", ["%ff", "a%", "a%2", "%zz", "%C3"])
def test_a_segment_that_cannot_be_decoded_is_refused(segment: str) -> None:
    with pytest.raises(BadPath):
        found(f"/v1/namespaces/{segment}/tables/t")


def test_a_base_path_is_taken_away_first_and_nothing_is_outside_of_it() -> None:
    assert found("/catalog/livez", base_path="/catalog") == ("/livez", {})
    assert found("/a/b/v1/config", base_path="/a/b/") == ("/v1/config", {})
    for path in ("/livez", "/catalogue/livez", "/catalog", "/catalog%2Flivez", "/v1/config"):
        with pytest.raises(UnknownPath):
            found(path, base_path="/catalog")


def test_the_same_route_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        Router([*ROUTES, route("GET", "/v1/{warehouse}/namespaces")])


@pytest.mark.parametrize("template", ["/v1/{prefix}/sheep", "/v1/{prefix}/{word}", "/{prefix}/tables", "/v1/{prefix}"])
def test_a_route_whose_prefix_could_not_be_told_from_a_word_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match="reserve"):
        Router([route("GET", template)])


@pytest.mark.parametrize("word", sorted(RESERVED_WORDS))
def test_no_warehouse_is_called_by_a_reserved_word(word: str) -> None:
    with pytest.raises(Exception, match=word):
        Settings.load(default_warehouse=word)


def test_the_docs_name_every_reserved_word(root: Path) -> None:
    section = (root / "docs" / "operations.md").read_text().split("### Warehouses", 1)[1].split("```", 1)[0]
    assert set(re.findall(r"`([a-z][a-z-]+)`", section)) == RESERVED_WORDS


def test_a_path_asked_for_again_is_the_same_match_and_another_method_another_one() -> None:
    router = Router(ROUTES)
    path = b"/v1/main/namespaces/a/tables/t"
    assert router.match("GET", path) is router.match("GET", path)
    assert router.match("HEAD", path).route.method == "HEAD"
    with pytest.raises(WrongMethod):
        router.match("DELETE", path)


def test_paths_that_are_long_or_many_are_not_all_remembered() -> None:
    router = Router(ROUTES)
    long = b"/v1/main/namespaces/a/tables/" + b"t" * 10_000
    assert router.match("GET", long) is not router.match("GET", long)
    for number in range(10_000):
        router.match("GET", b"/v1/main/namespaces/a/tables/%d" % number)
    assert router._remembered.cache_info().currsize <= 4_096
