"""Whatever arrives, the answer is a reason and never a server error, and nothing has changed."""

from __future__ import annotations

import gzip
import random
from copy import deepcopy
from pathlib import Path
from typing import Any

import orjson

from tests.wire.world import (
    SCHEMA,
    VIEW_VERSION,
    Json,
    Wire,
    append,
    change,
    creation,
    new_key,
    set_properties,
    snapshot,
    table_path,
    view_path,
)

SPEC: Json = {"spec-id": 0, "fields": [{"source-id": 1, "transform": "bucket[4]", "name": "b", "field-id": 1000}]}
ORDER: Json = {
    "order-id": 1,
    "fields": [{"source-id": 1, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}],
}
STATISTICS: Json = {
    "snapshot-id": 1,
    "statistics-path": "file:///x",
    "file-size-in-bytes": 1,
    "file-footer-size-in-bytes": 1,
    "blob-metadata": [{"type": "x", "snapshot-id": 1, "sequence-number": 1, "fields": [1]}],
}

GOOD: dict[str, tuple[str, Json]] = {
    "create namespace": ("/namespaces", {"namespace": ["n"], "properties": {"a": "b"}}),
    "update properties": ("/namespaces/db/properties", {"removals": ["x"], "updates": {"a": "b"}}),
    "create table": (
        "/namespaces/db/tables",
        {
            "name": "n",
            "schema": SCHEMA,
            "partition-spec": SPEC,
            "write-order": ORDER,
            "properties": {"a": "b"},
            "stage-create": False,
            "location": None,
        },
    ),
    "commit": (
        table_path(),
        {
            "identifier": {"namespace": ["db"], "name": "t"},
            "requirements": [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}],
            "updates": [
                *append(1),
                {"action": "add-schema", "schema": SCHEMA},
                {"action": "set-current-schema", "schema-id": 0},
                {"action": "add-spec", "spec": SPEC},
                {"action": "set-default-spec", "spec-id": 0},
                {"action": "add-sort-order", "sort-order": ORDER},
                {"action": "set-default-sort-order", "sort-order-id": 0},
                {"action": "set-statistics", "statistics": STATISTICS},
                {"action": "remove-statistics", "snapshot-id": 9},
                {"action": "set-partition-statistics", "partition-statistics": STATISTICS},
                {"action": "remove-partition-statistics", "snapshot-id": 9},
                {"action": "add-encryption-key", "encryption-key": {"key-id": "k", "encrypted-key-metadata": "YQ=="}},
                {"action": "remove-encryption-key", "key-id": "k"},
                {"action": "remove-snapshots", "snapshot-ids": [8]},
                {"action": "remove-snapshot-ref", "ref-name": "never"},
                {"action": "remove-schemas", "schema-ids": [7]},
                {"action": "remove-partition-specs", "spec-ids": [7]},
                {"action": "remove-properties", "removals": ["x"]},
                {"action": "upgrade-format-version", "format-version": 2},
                set_properties(a="b"),
            ],
        },
    ),
    "commit a creation": (table_path("n"), creation(updates=append(1))),
    "commit transaction": ("/transactions/commit", {"table-changes": [change("t", append(2))]}),
    "rename": (
        "/tables/rename",
        {"source": {"namespace": ["db"], "name": "t"}, "destination": {"namespace": ["db"], "name": "u"}},
    ),
    "register": ("/namespaces/db/register", {"name": "r", "metadata-location": "x", "overwrite": False}),
    "create view": (
        "/namespaces/db/views",
        {"name": "w", "schema": SCHEMA, "view-version": VIEW_VERSION, "properties": {"a": "b"}},
    ),
    "replace view": (
        view_path(),
        {
            "requirements": [{"type": "assert-view-uuid", "uuid": "x"}],
            "updates": [
                {"action": "add-schema", "schema": SCHEMA},
                {"action": "add-view-version", "view-version": {**VIEW_VERSION, "version-id": 2}},
                {"action": "set-current-view-version", "view-version-id": -1},
                {"action": "upgrade-format-version", "format-version": 1},
            ],
        },
    ),
    "rename view": (
        "/views/rename",
        {"source": {"namespace": ["db"], "name": "v"}, "destination": {"namespace": ["db"], "name": "u"}},
    ),
    "register view": ("/namespaces/db/register-view", {"name": "r", "metadata-location": "x"}),
    "report": (f"{table_path()}/metrics", {"report-type": "scan-report"}),
}

JUNK: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    2**31,
    2**63,
    2**70,
    "",
    "text",
    "\u0000",
    "x" * 10_000,
    [],
    {},
    [None],
    [[]],
    [{}],
    {"a": None},
    {"type": "struct"},
]


async def _furnished(wire: Wire) -> None:
    await wire.namespace()
    await wire.table()
    await wire.view()


async def test_what_is_no_json_is_400(wire: Wire) -> None:
    await _furnished(wire)
    for body in (
        b"",
        b"{",
        b"nonsense",
        b"{'a': 1}",
        b"\xff\xfe",
        b'{"a": NaN}',
        b'{"a": 1} trailing',
        b"null",
        b"[]",
        b'"text"',
        b"7",
        b'{"a": "\\ud800"}',
        b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
        b"[" * 100_000,
        b'{"updates":' + b"[" * 500 + b"]" * 500 + b',"requirements":[]}',
    ):
        for what, (path, _) in GOOD.items():
            answer = await wire.post(path, body=body)
            assert answer.refusal == (400, "BadRequestException"), (what, body[:40], answer.body)


async def test_a_body_with_one_part_exchanged_is_never_a_server_error(wire: Wire) -> None:
    await _furnished(wire)
    rng = random.Random(3)
    count = 0
    for what, (path, good) in GOOD.items():
        for place in _places(good):
            for bad in rng.sample(JUNK, 6):
                body = _with(good, place, bad)
                answer = await wire.post(path, body)
                assert answer.status < 500, (what, place, bad, answer.body)
                count += 1
                if answer.status >= 400:
                    assert answer.error["message"]
                if answer.status < 300:
                    await _restore(wire)
    assert count > 1_000


async def test_a_body_with_one_part_left_out_is_never_a_server_error(wire: Wire) -> None:
    await _furnished(wire)
    for what, (path, good) in GOOD.items():
        for place in _places(good):
            answer = await wire.post(path, _without(good, place), new_key())
            assert answer.status < 500, (what, place, answer.body)
            if answer.status < 300:
                await _restore(wire)


async def test_odd_snapshots_are_never_a_server_error_on_any_store(anywhere: Wire) -> None:
    await _furnished(anywhere)
    odd: list[Json] = [
        {"summary": {"operation": "append", "total-records": "not a number"}},
        {"summary": {"operation": "append", "x": "\u0000"}},
        {"summary": {}},
        {"timestamp-ms": -(2**62)},
        {"timestamp-ms": 2**62},
        {"sequence-number": 2**62},
        {"manifest-list": "\u0000"},
        {"extra": {"deep": [1, 2, {"x": None}]}},
        {"schema-id": 77},
    ]
    for number, more in enumerate(odd, 1):
        answer = await anywhere.commit(
            [{"action": "add-snapshot", "snapshot": {**snapshot(number, number), **more}}], key=new_key()
        )
        assert answer.status < 500, (more, answer.body)
        assert (await anywhere.get(table_path())).status == 200


async def test_text_that_stores_find_hard_is_kept_or_refused_on_any_store(anywhere: Wire) -> None:
    await _furnished(anywhere)
    for text in ("\u0000", "a\u0000b", "\u001f", "\uffff", "\U0010ffff", "\u202e", "'; DROP TABLE x; --", "\\", '"'):
        for number, answer in enumerate(
            (
                await anywhere.post("/namespaces/db/properties", {"updates": {"p": text, f"{text}k": "v"}}),
                await anywhere.commit([set_properties(**{"p": text, f"{text}k": "v"})], key=new_key()),
                await anywhere.commit([set_properties(a="b")], name=text or "x", key=new_key()),
                await anywhere.post("/namespaces", {"namespace": ["n" + text]}, new_key()),
            )
        ):
            assert answer.status in (200, 400, 404), (text, number, answer.body)
        loaded = (await anywhere.load())["metadata"]["properties"]
        assert loaded["p"] == text


async def test_a_body_that_is_too_large_is_413_however_it_arrives(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path, max_body_bytes=20_000) as wire:
        await _furnished(wire)
        before = await wire.load()
        large = orjson.dumps({"requirements": [], "updates": [set_properties(a="x" * 30_000)]})
        packed = {"Content-Encoding": "gzip"}
        for answer in (
            await wire.post(table_path(), body=large),
            await wire.post(table_path(), parts=[large[:15_000], large[15_000:]]),
            await wire.post(table_path(), body=gzip.compress(large), headers=packed),
        ):
            assert answer.refusal == (413, "RequestTooLargeException")
            assert "max_body_bytes" in answer.error["message"]
        assert await wire.load() == before
        small = orjson.dumps({"requirements": [], "updates": [set_properties(a="b")]})
        assert (await wire.post(table_path(), body=gzip.compress(small), headers=packed)).status == 200


async def test_values_that_are_too_large_for_a_cell_are_400(anywhere: Wire) -> None:
    await _furnished(anywhere)
    answer = await anywhere.post("/namespaces/db/properties", {"updates": {"a": "x" * 300_000}}, new_key())
    assert answer.refusal == (400, "BadRequestException")
    large = await anywhere.commit([set_properties(a="x" * 300_000)])
    assert large.status == 200
    assert set((await anywhere.get("/namespaces/db")).json()["properties"]) <= {"location"}


async def test_many_branches_and_tags_are_no_reason_to_fail(wire: Wire) -> None:
    await _furnished(wire)
    assert (await wire.commit(append(1))).status == 200
    tags = [
        {"action": "set-snapshot-ref", "ref-name": f"tag-{number}-" + "x" * 100, "type": "tag", "snapshot-id": 1}
        for number in range(900)
    ]
    assert (await wire.commit(tags)).status == 200
    assert len((await wire.load())["metadata"]["refs"]) == 901


async def test_odd_headers_and_queries_are_no_server_error(wire: Wire) -> None:
    await _furnished(wire)
    for headers in ({"If-None-Match": "\xff"}, {"If-None-Match": ""}, {"Prefer": "\xff,,;="}, {"Accept": "text/html"}):
        assert (await wire.get(table_path(), headers=headers)).status < 500
    for query in ("snapshots=", "%FF=1", "a&b&c", "=", "&".join(["a=b"] * 500), "snapshots=all&snapshots=x"):
        assert (await wire.get(f"{table_path()}?{query}")).status < 500
    for encoding in ("br", "gzip", "gzip, gzip", "\xff"):
        answer = await wire.post(table_path(), body=b"{}", headers={"Content-Encoding": encoding})
        assert answer.refusal == (400, "BadRequestException")


# --- taking bodies apart ---


def _places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [here] if here else []
    if isinstance(value, dict):
        for name, item in value.items():
            found += _places(item, (*here, name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            found += _places(item, (*here, number))
    return found


def _with(document: Json, place: tuple[Any, ...], value: Any) -> Json:
    copy = deepcopy(document)
    inner: Any = copy
    for step in place[:-1]:
        inner = inner[step]
    # Beyond what the encoder takes, a client could still write it.
    inner[place[-1]] = float(value) if isinstance(value, int) and value >= 2**64 else value
    return copy


def _without(document: Json, place: tuple[Any, ...]) -> Json:
    copy = deepcopy(document)
    inner: Any = copy
    for step in place[:-1]:
        inner = inner[step]
    del inner[place[-1]]
    return copy


async def _restore(wire: Wire) -> None:
    """What a request that was good after all has taken away is put back."""
    for path in ("n", "u", "r", "text"):
        await wire.delete(table_path(path))
    for path in ("w", "u", "r", "text"):
        await wire.delete(view_path(path))
    if (await wire.head(table_path())).status == 404:
        await wire.table()
    if (await wire.head(view_path())).status == 404:
        await wire.view()


# --- limits ---


async def test_a_member_that_comes_twice_is_refused_by_every_operation_that_takes_json(wire: Wire) -> None:
    await _furnished(wire)
    before = await wire.load()
    for what, (path, body) in GOOD.items():
        text = orjson.dumps(body)
        name = orjson.dumps(next(iter(body)))
        for twice in (b"{" + name + b":null," + text[1:], text[:-1] + b"," + name + b" :null}"):
            answer = await wire.post(path, body=twice, key=new_key())
            assert answer.refusal == (400, "BadRequestException"), what
            assert "two members named" in answer.error["message"]
    assert await wire.load() == before


async def test_a_large_commit_is_replayed_under_its_key_whatever_its_spelling(wire: Wire) -> None:
    await _furnished(wire)
    body = {"requirements": [], "updates": [set_properties(text="é" * 60_000, n="1")]}
    key = new_key()
    first = await wire.post(table_path(), body=orjson.dumps(body), key=key)
    assert first.status == 200
    spaced = orjson.dumps(body, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)
    packed = gzip.compress(spaced)
    for again in (
        await wire.post(table_path(), body=spaced, key=key),
        await wire.post(table_path(), body=packed, key=key, headers={"Content-Encoding": "gzip"}),
    ):
        assert again.json() == first.json()
    other = {**body, "updates": [set_properties(text="é" * 60_001, n="1")]}
    assert (await wire.post(table_path(), body=orjson.dumps(other), key=key)).status == 409


async def test_t_limit_5_metadata_stays_below_its_limit_and_may_shrink(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path, max_metadata_bytes=100_000) as wire:
        await _furnished(wire)
        grow = {f"p{number}": "x" * 30_000 for number in range(3)}
        assert (await wire.commit([set_properties(**grow)])).status == 200
        key = new_key()
        for _ in range(2):
            # The refusal is final for its key: nothing was applied.
            refused = await wire.commit([set_properties(q="x" * 30_000)], key=key)
            assert refused.refusal == (400, "BadRequestException")
            assert "max_metadata_bytes" in refused.error["message"]
            assert "Expire snapshots" in refused.error["message"]
        assert (await wire.create("large", properties={"p": "x" * 101_000})).status == 400
        view = {"name": "w", "schema": SCHEMA, "view-version": VIEW_VERSION, "properties": {"p": "x" * 101_000}}
        assert (await wire.post("/namespaces/db/views", view)).status == 400
    async with Wire.opened(tmp_path, max_metadata_bytes=50_000) as wire:
        # A table that is larger than the limit already: it is read, and may become smaller.
        assert "q" not in (await wire.load())["metadata"]["properties"]
        assert (await wire.commit([set_properties(p0="y" * 30_100)])).status == 400
        for number in range(3):
            removed = {"action": "remove-properties", "removals": [f"p{number}"]}
            assert (await wire.commit([removed])).status == 200
        location = (await wire.load())["metadata-location"]
        large = Path(location.removeprefix("file://")).parent / "large.metadata.json"
        large.write_bytes(b" " * 50_001)
        register = {"name": "r", "metadata-location": f"file://{large}"}
        refused = await wire.post("/namespaces/db/register", register)
        assert refused.refusal == (400, "BadRequestException")
        assert "max_metadata_bytes" in refused.error["message"]


async def test_an_error_does_not_repeat_all_of_what_was_sent(wire: Wire) -> None:
    await _furnished(wire)
    answer = await wire.post("/namespaces", {"namespace": ["n"], "properties": {"k" * 500_000: 1}})
    assert answer.status == 400
    assert len(answer.body) < 20_000
