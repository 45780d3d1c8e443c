"""What nobody should send: a catalogue, from which one request in twenty is drawn.

Each kind says which answers are right. What would change something if it were taken seriously carries `MARK`, and the
end of the storm looks for it everywhere.

As long as the list of what people send.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson

from tests.bench.storm.http import request
from tests.wire.world import new_key

MARK: Final = "storm.refused"
"""A property that no table has, unless something was done that was refused."""

REFUSED: Final = frozenset(range(400, 500))
BODY_BYTES: Final = 1 << 20
"""What the server takes at most (`max_body_bytes`)."""

_NOBODY: Final = frozenset({401, 429})
_HIDDEN: Final = frozenset({403, 404})
_JUNK: Final[tuple[Any, ...]] = (
    True, -1, 1.5, 2**63, "", "\u0000", "x" * 10_000, {"a": None}, [None], [[]], [{}]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bad:
    data: bytes
    right: frozenset[int] = REFUSED
    """The statuses that are right; and 429, as wrong tokens come from the same address."""

    leaves: bool = False
    """Whether the client hangs up instead of waiting."""

    silence: bool = False
    """Whether hanging up is an answer, too: what cannot be read need not be answered."""

    door: str = "http"
    key: str | None = None
    """Under which nothing may have happened."""


@dataclass(slots=True)
class Sender:
    """Who sends it, and what they know of the others."""

    token: str
    table: str
    """The path of a table of their own."""

    namespace: str
    others: tuple[str, ...]
    """Paths of tables that they may not see."""

    dead_tokens: tuple[str, ...]
    """Revoked, and expired."""

    operations: tuple[tuple[str, str], ...]
    """Method and path of everything that takes a body."""

    used_key: str
    """Of a commit of theirs that was applied."""

    rng: random.Random
    transaction: str = "01900000-0000-7000-8000-000000000000"
    """Somebody else's."""

    def send(self, method: str, path: str, body: Any = b"", token: str | None = "", **headers: str) -> bytes:
        """`token`: the sender's own, unless given; None: none at all."""
        if token is not None:
            headers.setdefault("Authorization", f"Bearer {token or self.token}")
        return request(method, path, body if isinstance(body, bytes) else orjson.dumps(body), **headers)

    def change(self, **more: Any) -> dict[str, Any]:
        """What would be a good commit."""
        return {"requirements": [], "updates": [{"action": "set-properties", "updates": {MARK: "yes"}}], **more}

    def commit(self, body: Any, right: frozenset[int] = REFUSED, **headers: str) -> Bad:
        """To one's own table, under a key."""
        key = new_key()
        return Bad(self.send("POST", self.table, body, **{"Idempotency_Key": key, **headers}), right, key=key)


KINDS: dict[str, Callable[[Sender], Bad]] = {}


def deck(rng: random.Random) -> Iterator[str]:
    """Kinds without end: all of them, in some order, before any comes again."""
    while True:
        yield from rng.sample(sorted(KINDS), len(KINDS))


def _kind(function: Callable[[Sender], Bad]) -> Callable[[Sender], Bad]:
    KINDS[function.__name__.strip("_").replace("_", " ")] = function
    return function


# --- bodies ---


@_kind
def broken_json(sender: Sender) -> Bad:
    good = orjson.dumps(sender.change())
    return sender.commit(
        sender.rng.choice(
            [
                b"",
                good[:-1],
                good + b"}",
                good.replace(b"[", b"", 1),
                good.replace(b'"', b"'"),
                b"null",
                b"[]",
                b"7",
                b"{",
            ]
        )
    )


@_kind
def odd_text(sender: Sender) -> Bad:
    odd = sender.rng.choice([b"\xff\xfe", b"\xc0\x80", b"\\ud800", b"\xed\xa0\x80", b"\x00", b"\\u12"])
    return sender.commit(orjson.dumps(sender.change()).replace(b"yes", odd))


@_kind
def numbers_that_are_none(sender: Sender) -> Bad:
    number = sender.rng.choice([b"NaN", b"Infinity", b"-", b"1e", b"0x10", b"1" * 5_000])
    return sender.commit(orjson.dumps(sender.change()).replace(b'"yes"', number))


@_kind
def wrong_types(sender: Sender) -> Bad:
    place = sender.rng.choice(["requirements", "updates"])
    return sender.commit(sender.change(**{place: sender.rng.choice(_JUNK)}))


@_kind
def a_body_of_nothing_known(sender: Sender) -> Bad:
    """To any operation that takes one. What is not asked for is ignored where the specification says so."""
    method, path = sender.rng.choice(sender.operations)
    text = sender.rng.choice(["x", "", "\u0000", "x" * 5_000])
    body = sender.rng.choice([7, text, [], [text], [[]], {"a": text}, {"name": 5}, {"namespace": text}, *_NEARLY])
    return Bad(sender.send(method, path, body), REFUSED | {200, 204})


_NEARLY: Final[tuple[Any, ...]] = (
    {"name": "\u0000", "schema": []},
    {"name": "x" * 2_000, "schema": {"type": "struct", "fields": 7}},
    {"table-changes": [{}, 1, None]},
    {"table-changes": {}},
    {"identifiers": [{"namespace": "x"}]},
    {"source": {"namespace": [], "name": ""}, "destination": None},
    {"holder": 1, "role": [], "on": {}},
    {"updates": {"a": {}}, "removals": "x"},
    {"value": {}, "revision": -(2**63)},
    {"metadata-location": "file:///\u0000"},
    {"description": 1, "tags": []},
    {"report-type": [], "pipeline": {}, "stages": 1},
)


@_kind
def deep_nesting(sender: Sender) -> Bad:
    levels = sender.rng.choice([600, 5_000, 100_000])
    opening, closing = sender.rng.choice([(b"[", b"]"), (b'{"a":', b"}")])
    inner = opening * levels + b"1" + closing * sender.rng.choice([levels, 0])
    return sender.commit(b'{"requirements":[],"updates":' + inner + b"}")


@_kind
def an_update_that_is_none(sender: Sender) -> Bad:
    odd = sender.rng.choice(
        [
            {"action": "drop-everything"},
            {"action": 7},
            {},
            {"action": "set-location", "location": "file:///etc"},
            {"action": "set-location", "location": "file:///../../x"},
            {"action": "add-snapshot", "snapshot": {"snapshot-id": "x"}},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 424242},
            {"action": "add-schema", "schema": {"type": "struct", "fields": [{"id": 1}]}},
            {"action": "set-properties", "updates": {"lakepact.owner": "me"}},
        ]
    )
    return sender.commit(sender.change(updates=[*sender.change()["updates"], odd]))


@_kind
def too_many_updates(sender: Sender) -> Bad:
    return sender.commit(sender.change(updates=sender.change()["updates"] * 1_001))


@_kind
def too_many_tables(sender: Sender) -> Bad:
    name = {"namespace": [sender.namespace], "name": "a"}
    changes = [{**sender.change(), "identifier": {**name, "name": f"n{number}"}} for number in range(101)]
    key = new_key()
    sent = sender.send("POST", "/v1/main/transactions/commit", {"table-changes": changes}, Idempotency_Key=key)
    return Bad(sent, key=key)


@_kind
def a_requirement_that_does_not_hold(sender: Sender) -> Bad:
    wrong = sender.rng.choice(
        [
            {"type": "assert-table-uuid", "uuid": new_key()},
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 424242},
            {"type": "assert-create"},
            {"type": "assert-current-schema-id", "current-schema-id": 99},
        ]
    )
    return sender.commit(sender.change(requirements=[wrong]), frozenset({409}))


@_kind
def one_of_many_does_not_hold(sender: Sender) -> Bad:
    """All or none: the first of the two is as it should be."""
    changes = [
        {**sender.change(), "identifier": {"namespace": [sender.namespace], "name": name}, "requirements": wrong}
        for name, wrong in (("a", []), ("b", [{"type": "assert-table-uuid", "uuid": new_key()}]))
    ]
    return _many(sender, changes, frozenset({409}))


@_kind
def one_of_many_is_anothers(sender: Sender) -> Bad:
    path = sender.rng.choice(sender.others).split("/")
    changes = [
        {**sender.change(), "identifier": {"namespace": [namespace], "name": name}}
        for namespace, name in ((sender.namespace, "a"), (path[4], path[6]))
    ]
    return _many(sender, changes, _HIDDEN)


def _many(sender: Sender, changes: list[Any], right: frozenset[int]) -> Bad:
    key = new_key()
    sent = sender.send("POST", "/v1/main/transactions/commit", {"table-changes": changes}, Idempotency_Key=key)
    return Bad(sent, right, key=key)


@_kind
def an_oversized_body(sender: Sender) -> Bad:
    large = orjson.dumps(sender.change(padding="x" * (BODY_BYTES + 1)))
    return sender.commit(large, frozenset({413}))


@_kind
def a_packed_body_that_is_oversized(sender: Sender) -> Bad:
    return sender.commit(_BOMB, frozenset({413}), Content_Encoding="gzip")


_BOMB: Final = gzip.compress(b'{"a":"' + b"x" * (30 << 20) + b'"}')


@_kind
def a_size_that_is_only_said(sender: Sender) -> Bad:
    sent = sender.send("POST", sender.table, b"", Content_Length=str(1 << 40), Expect="100-continue")
    return Bad(sent, frozenset({413}))


@_kind
def a_member_that_comes_twice(sender: Sender) -> Bad:
    good = orjson.dumps(sender.change())
    twice = sender.rng.choice([b'"updates":[],', b'"requirements" : [],', b'"\\u0075pdates":[],'])
    return sender.commit(b"{" + twice + good[1:], frozenset({400}))


@_kind
def thousands_of_gzip_members(sender: Sender) -> Bad:
    packed = gzip.compress(b"") * sender.rng.choice([1_001, 20_000]) + gzip.compress(orjson.dumps(sender.change()))
    return sender.commit(packed, frozenset({400}), Content_Encoding="gzip")


@_kind
def more_than_a_limit_allows(sender: Sender) -> Bad:
    """Each at the cost of a small request."""
    columns = [{"id": number, "name": f"c{number}", "required": False, "type": "long"} for number in range(1, 10_100)]
    geometry = [{"id": 1, "name": "g", "required": False, "type": "geometry(" + " " * 3_000}]
    long = [{"id": 1, "name": "n" * 200_000, "required": False, "type": "long"}]
    fields = sender.rng.choice([columns, geometry, long])
    odd = {"action": "add-schema", "schema": {"type": "struct", "fields": fields}}
    body = sender.rng.choice(
        [
            orjson.dumps(sender.change(updates=[*sender.change()["updates"], odd])),
            orjson.dumps(sender.change())[:-1] + b',"more":[' + b"1," * 505_000 + b"1]}",
        ]
    )
    return sender.commit(body, frozenset({400}))


@_kind
def a_namespace_without_end(sender: Sender) -> Bad:
    table = {"namespace": ["a"] * sender.rng.choice([65, 40_000]), "name": "t"}
    path, body = sender.rng.choice(
        [
            ("/v1/main/tables/rename", {"source": table, "destination": table}),
            ("/v1/main/tables/batch-load", {"identifiers": [table]}),
            ("/v1/main/transactions/commit", {"table-changes": [{**sender.change(), "identifier": table}]}),
            ("/v1/main/grants/check", {"on": "namespace", "namespace": table["namespace"]}),
        ]
    )
    return Bad(sender.send("POST", path, body), frozenset({400}))


@_kind
def one_table_many_times(sender: Sender) -> Bad:
    table = {"namespace": [sender.namespace], "name": "a"}
    return Bad(sender.send("POST", "/v1/main/tables/batch-load", {"identifiers": [table] * 200}), frozenset({400}))


@_kind
def an_encoding_that_is_none(sender: Sender) -> Bad:
    encoding = sender.rng.choice(["br", "gzip", "gzip, gzip", "\xff", "x" * 500])
    return sender.commit(sender.change(), Content_Encoding=encoding)


@_kind
def a_form_instead_of_json(sender: Sender) -> Bad:
    return sender.commit(f"{MARK}=yes".encode(), Content_Type="application/x-www-form-urlencoded")


@_kind
def a_half_sent_body(sender: Sender) -> Bad:
    key = new_key()
    whole = sender.send("POST", sender.table, sender.change(), Idempotency_Key=key)
    return Bad(whole[: -sender.rng.randrange(1, 40)], leaves=True, key=key)


@_kind
def half_of_a_head(sender: Sender) -> Bad:
    whole = sender.send("POST", sender.table, sender.change())
    return Bad(whole[: sender.rng.randrange(1, whole.index(b"\r\n\r\n"))], leaves=True)


# --- keys ---


@_kind
def a_key_that_is_none(sender: Sender) -> Bad:
    key = sender.rng.choice(
        [
            "x",
            "00000000-0000-4000-8000-000000000000",
            "00000000-0000-7000-8000-000000000000",
            "ffffffff-ffff-7fff-bfff-ffffffffffff",
            "{" + new_key() + "}",
            new_key() + "0",
            "k" * 10_000,
            "\xff\xfe",
            "../../etc",
            "'; DROP TABLE cells; --",
        ]
    )
    return Bad(sender.send("POST", sender.table, sender.change(), Idempotency_Key=key))


@_kind
def a_key_that_was_used(sender: Sender) -> Bad:
    return Bad(sender.send("POST", sender.table, sender.change(), Idempotency_Key=sender.used_key), frozenset({409}))


# --- paths and queries ---


@_kind
def a_path_that_is_none(sender: Sender) -> Bad:
    path = sender.rng.choice(
        [
            "/v1/main/namespaces/%ZZ",
            "/v1/main/namespaces/%",
            "/v1/main/namespaces/%FF%FE/tables",
            "/v1/main/namespaces/%00/tables/%00",
            "/v1/main/namespaces/%1F%1F/tables/a",
            "/v1/main/namespaces/..%2F..%2Fetc/tables/passwd",
            "/v1/main/namespaces/" + "x" * 8_000 + "/tables/a",
            "/v1/main/namespaces/" + "%1F".join("n" * 300) + "/tables/a",
            "/v1/nowhere/namespaces/a",
            "/v1/main@" + new_key() + "/namespaces",
            "/v1/main@nothing/namespaces",
            "/v1//namespaces",
            "/" * 2_000,
            "/v2/config",
            "/ui/catalog/main/%FF/x",
            "/ui/static/..%2Fsite.py",
        ]
    )
    return Bad(sender.send("GET", path))


@_kind
def a_query_that_is_none(sender: Sender) -> Bad:
    query = sender.rng.choice(
        [
            "pageSize=-1",
            "pageSize=0",
            "pageSize=abc",
            "pageSize=" + "9" * 400,
            "pageToken=%FF",
            "pageToken=" + "A" * 4_000 + "&pageSize=10",
            "pageToken=%00&pageSize=1",
            "&".join(f"a{number}=1" for number in range(2_000)),
        ]
    )
    return Bad(sender.send("GET", f"/v1/main/namespaces/{sender.namespace}/tables?{query}"), REFUSED | {200})


@_kind
def moments_that_are_none(sender: Sender) -> Bad:
    moment = sender.rng.choice(["yesterday", "0000-00-00", "9" * 30, "%00", "1.1." + "x" * 500, "-1", "1.1.%2F", "+"])
    return Bad(sender.send("GET", f"/v1/main/audit?before={moment}"))


@_kind
def a_transaction_that_is_none(sender: Sender) -> Bad:
    one = sender.rng.choice(["x", new_key(), sender.transaction, "%00", "0" * 500])
    step = sender.rng.choice(["", "/commit", "/abort", "/renew", "/prepare", "/state/x"])
    return Bad(sender.send("GET" if step in ("", "/state/x") else "POST", f"/v1/main/transactions/{one}{step}"))


@_kind
def a_method_that_is_none(sender: Sender) -> Bad:
    method = sender.rng.choice(["PATCH", "OPTIONS", "TRACE", "BREW", "get", "MKCOL", "P\xd6ST"])
    return Bad(sender.send(method, sender.table, sender.change()), silence=True)


# --- who it is ---


@_kind
def no_token(sender: Sender) -> Bad:
    key = new_key()
    return Bad(sender.send("POST", sender.table, sender.change(), None, Idempotency_Key=key), _NOBODY, key=key)


@_kind
def a_wrong_token(sender: Sender) -> Bad:
    id, _, secret = sender.token.removeprefix("lakepact_").partition("_")
    token = sender.rng.choice(
        [
            *sender.dead_tokens,
            f"lakepact_{id}_{secret[::-1]}",
            f"lakepact_{id}_{secret[:-1]}",
            "x" * 20_000,
            "..",
            "eyJhbGciOiJub25lIn0.e30.",
            "\xff\xfe",
        ]
    )
    key = new_key()
    return Bad(sender.send("POST", sender.table, sender.change(), token, Idempotency_Key=key), _NOBODY, key=key)


@_kind
def another_scheme(sender: Sender) -> Bad:
    header = sender.rng.choice([sender.token, f"Basic {sender.token}", "Bearer", "Bearer  ", "Negotiate YII="])
    return Bad(request("GET", "/v1/config", Authorization=header), _NOBODY)


@_kind
def two_tokens(sender: Sender) -> Bad:
    one = f"Authorization: Bearer {sender.token}\r\n"
    return Bad(f"GET /v1/config HTTP/1.1\r\nHost: storm\r\n{one}{one}\r\n".encode(), _NOBODY)


@_kind
def anothers_table(sender: Sender) -> Bad:
    path, key = sender.rng.choice(sender.others), new_key()
    method, body = sender.rng.choice(
        [("GET", b""), ("DELETE", b""), ("POST", sender.change()), ("POST", sender.change())]
    )
    return Bad(sender.send(method, path, body, Idempotency_Key=key), _HIDDEN, key=key)


@_kind
def an_administrators_work(sender: Sender) -> Bad:
    path, body = sender.rng.choice(
        [
            ("/v1/tokens", {"name": "root", "admin": True}),
            ("/v1/main/grants", {"holder": "everyone", "role": "manage", "on": "warehouse"}),
            ("/v1/main/namespaces", {"namespace": ["refused"], "properties": {MARK: "yes"}}),
            (
                f"/v1/main/namespaces/{sender.namespace}/register",
                {"name": "r", "metadata-location": "file:///etc/passwd"},
            ),
        ]
    )
    return Bad(sender.send("POST", path, body), frozenset({400, 403, 404}))


@_kind
def nonsense_for_oauth(sender: Sender) -> Bad:
    body = sender.rng.choice(
        [b"", b"grant_type=password", b"\xff", b"grant_type=client_credentials&client_secret=x", b"a=1&" * 5_000, b"{}"]
    )
    media = sender.rng.choice(["application/x-www-form-urlencoded", "application/json", "text/plain; charset=\xff"])
    return Bad(sender.send("POST", "/v1/oauth/tokens", body, None, Content_Type=media))


@_kind
def a_form_that_is_not_of_a_page(sender: Sender) -> Bad:
    origin = sender.rng.choice(["http://elsewhere.example", "null", "http://[", "\xff", "http://storm:99999", ""])
    path = sender.rng.choice(["/ui/login", f"/ui/transactions/main/{sender.transaction}/abort", "/ui/logout"])
    media = "application/x-www-form-urlencoded"
    # Who is not logged in is led to the login; nobody is logged in by this.
    return Bad(
        sender.send("POST", path, b"token=lakepact_x_y&csrf=x", None, Origin=origin, Content_Type=media),
        REFUSED | {303},
    )


# --- what is hardly HTTP ---


@_kind
def large_headers(sender: Sender) -> Bad:
    name, value = sender.rng.choice(
        [("X-Large", "x" * 200_000), ("Cookie", "a=b; " * 30_000), ("If-None-Match", '"x", ' * 20_000)]
    )
    return Bad(sender.send("GET", "/v1/config", **{name.replace("-", "_"): value}), frozenset({431}), silence=True)


@_kind
def many_headers(sender: Sender) -> Bad:
    return Bad(
        sender.send("GET", "/v1/config", **{f"X_{number}": "x" for number in range(3_000)}),
        REFUSED | {200},
        silence=True,
    )


@_kind
def odd_headers(sender: Sender) -> Bad:
    headers = sender.rng.choice(
        [
            {"If_None_Match": "\xff\xfe"},
            {"Prefer": "\xff,,;="},
            {"Accept": "\xff/*"},
            {"traceparent": "00-zz-zz-zz"},
            {"X_Request_ID": "a\xffb" * 50},
            {"X_Iceberg_Access_Delegation": "\xff," * 500},
            {"Range": "bytes=9-1"},
            {"Upgrade": "websocket", "Connection": "Upgrade"},
            {"Cookie": "lakepact=\xff; lakepact=.;;=;"},
        ]
    )
    return Bad(sender.send("GET", sender.table, **headers), REFUSED | {200, 304})


@_kind
def a_transaction_in_a_header_that_is_none(sender: Sender) -> Bad:
    one = sender.rng.choice(["x", new_key(), "\xff", "0" * 5_000, sender.transaction])
    return Bad(sender.send("POST", sender.table, sender.change(), X_Lakepact_Transaction=one))


@_kind
def two_lengths(sender: Sender) -> Bad:
    body = orjson.dumps(sender.change())
    head = f"POST {sender.table} HTTP/1.1\r\nHost: storm\r\nAuthorization: Bearer {sender.token}\r\n"
    odd = sender.rng.choice(
        [
            f"Content-Length: {len(body)}\r\nContent-Length: 3\r\n",
            f"Content-Length: {len(body)}\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: -1\r\n",
            "Content-Length: 1_0\r\n",
            "Content-Length: x\r\n",
            "Content-Length: 99999999999999999999999\r\n",
            "Transfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: x\r\n",
        ]
    )
    return Bad(f"{head}{odd}\r\n".encode() + body, silence=True)


@_kind
def no_http_at_all(sender: Sender) -> Bad:
    return Bad(_garbage(sender), silence=True)


@_kind
def garbage_for_grpc(sender: Sender) -> Bad:
    return Bad(_garbage(sender), leaves=True, door="grpc")


def _garbage(sender: Sender) -> bytes:
    return sender.rng.choice(
        [
            sender.rng.randbytes(sender.rng.randrange(1, 3_000)) + b"\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + sender.rng.randbytes(500),
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + sender.rng.randbytes(200),
            b"GET\r\n\r\n",
            b"GET /v1/config\r\n\r\n",
            b"GET /v1/config HTTP/9.9\r\n\r\n",
            b"GET /v1/c\xffnfig HTTP/1.1\r\nHost: storm\r\n\r\n",
            b"GET http:// HTTP/1.1\r\n\r\n",
            b"CONNECT elsewhere.example:443 HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET /v1/config HTTP/1.1\r\nno colon\r\n\r\n",
            b"GET /v1/config HTTP/1.1\r\na: b\r\n c: folded\r\n\r\n",
            b"\x00" * 2_000,
        ]
    )
