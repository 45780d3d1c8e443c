"""How an open transaction ends: what its commit promises, what it conflicts with, and what it answers afterwards.

One file, since every way to end excludes the others, and a reader wants to see that none is missing.
"""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import orjson
import pytest

from lakepact.stores import open_store
from tests.support.waiting import PATIENCE_S
from tests.wire.overlays import Overlaid, batch, begin, furnish, head, properties, rename
from tests.wire.people import house, on_namespace
from tests.wire.test_receipts import receipts
from tests.wire.world import (
    SCHEMA,
    VIEW_VERSION,
    WIDER,
    Json,
    Wire,
    append,
    change,
    creation,
    new_key,
    set_properties,
    table_path,
)

ISOLATIONS = ("serializable", "snapshot")
CONFLICT = (409, "CommitFailedException")


def conflicting(answer: Any) -> list[str]:
    """The tables that a conflict names."""
    assert answer.refusal == CONFLICT, answer.body
    named = [one["identifier"]["name"] for one in answer.error["conflicts"] if "identifier" in one]
    assert all(f"db.{name}" in answer.error["message"] for name in named)
    return sorted(set(named))


# --- one version, one time ---


async def test_all_tables_get_one_version_with_one_time(anywhere: Wire) -> None:
    await furnish(anywhere, "a", "b")
    await anywhere.commit(append(1), name="a")
    base = {name: await anywhere.load(name) for name in "ab"}
    tx = await begin(anywhere)
    assert (await tx.commit(append(2, 2, 1), name="a")).status == 200
    between = await tx.load("a")
    assert (await tx.commit(append(3, 3, 2), name="a")).status == 200
    assert (await tx.commit(append(4), name="b")).status == 200
    await tx.table("new")
    assert (await tx.commit([set_properties(x="y")], name="new")).status == 200
    last = [one["metadata"]["snapshots"][-1]["timestamp-ms"] for one in await batch(tx, "a", "b")]
    await tx.publish()

    a, b, new = [one["metadata"] for one in await batch(anywhere, "a", "b", "new")]
    assert a["last-updated-ms"] == b["last-updated-ms"] == new["last-updated-ms"] >= max(last)
    published_ms = a["last-updated-ms"]
    assert a["snapshot-log"] == [
        *base["a"]["metadata"]["snapshot-log"],
        {"snapshot-id": 3, "timestamp-ms": published_ms},
    ]
    assert b["snapshot-log"] == [{"snapshot-id": 4, "timestamp-ms": published_ms}]
    assert new["snapshot-log"] == new["metadata-log"] == []
    assert [one["snapshot-id"] for one in a["snapshots"]] == [1, 2, 3]
    before, *staged = [one["timestamp-ms"] for one in (*a["snapshots"], *b["snapshots"])]
    assert before == base["a"]["metadata"]["snapshots"][0]["timestamp-ms"]
    assert staged == [published_ms] * 3, "snapshots have the time at which they became visible"
    for name, metadata in (("a", a), ("b", b)):
        log = metadata["metadata-log"]
        assert log[-1]["metadata-file"] == base[name]["metadata-location"]
        assert log[-1]["timestamp-ms"] == base[name]["metadata"]["last-updated-ms"]
        assert len(log) == len(base[name]["metadata"]["metadata-log"]) + 1
    assert between["metadata-location"] not in str(a["metadata-log"])
    for asked_ms in (base["a"]["metadata"]["last-updated-ms"], published_ms - 1, published_ms):
        seen = {name: _as_of(metadata, asked_ms) for name, metadata in (("a", a), ("b", b))}
        assert seen in ({"a": 1, "b": None}, {"a": 3, "b": 4}), "never half of it, whenever one asks"


def _as_of(metadata: Json, asked_ms: int) -> int | None:
    """The snapshot that was current at a time, as every engine works it out."""
    earlier = [one["snapshot-id"] for one in metadata["snapshot-log"] if one["timestamp-ms"] <= asked_ms]
    return earlier[-1] if earlier else None


async def test_a_table_is_never_published_as_older_than_it_was(tmp_path: Path) -> None:
    """Another machine's clock may be ahead of this one's."""
    async with Wire.opened(tmp_path) as wire:
        await furnish(wire, "u")
        made = await wire.table("t")
        ahead_ms = made["metadata"]["last-updated-ms"] + 3_600_000
        file = wire.path_of(made["metadata-location"])
        later = file.with_name("00001-later.metadata.json")
        later.write_bytes(orjson.dumps({**made["metadata"], "last-updated-ms": ahead_ms}))
        body = {"name": "t", "metadata-location": f"file://{later}", "overwrite": True}
        assert (await wire.post("/namespaces/db/register", body)).status == 200
        tx = await begin(wire)
        for name in "tu":
            assert (await tx.commit([set_properties(a="b")], name=name)).status == 200
        await tx.publish()
        assert {(await wire.load(name))["metadata"]["last-updated-ms"] for name in "tu"} == {ahead_ms}


async def test_a_table_registered_inside_keeps_its_history(anywhere: Wire) -> None:
    await furnish(anywhere, "t")
    await anywhere.commit(append(1))
    await anywhere.commit(append(2, 2, 1))
    before = await anywhere.load()
    assert (await anywhere.delete(table_path())).status == 204
    tx = await begin(anywhere)
    body = {"name": "back", "metadata-location": before["metadata-location"]}
    assert (await tx.post("/namespaces/db/register", body)).status == 200
    await tx.publish()
    back = await anywhere.load("back")
    assert back == before
    again = await begin(anywhere)
    assert (await again.delete(table_path("back"))).status == 204
    body = {"name": "more", "metadata-location": before["metadata-location"]}
    assert (await again.post("/namespaces/db/register", body)).status == 200
    assert (await again.commit(append(3, 3, 2), name="more")).status == 200
    await again.publish()
    metadata = (await anywhere.load("more"))["metadata"]
    assert [one["snapshot-id"] for one in metadata["snapshot-log"]] == [1, 2, 3]
    assert metadata["metadata-log"][-1]["metadata-file"] == before["metadata-location"]


async def test_what_was_only_renamed_keeps_its_version(anywhere: Wire) -> None:
    await furnish(anywhere, "t", "u")
    before = await anywhere.load()
    tx = await begin(anywhere)
    assert (await tx.post("/tables/rename", rename("t", "moved"))).status == 204
    assert (await tx.post("/tables/rename", rename("u", "changed"))).status == 204
    assert (await tx.commit(append(1), name="changed")).status == 200
    await tx.publish()
    assert (await anywhere.load("moved"))["metadata-location"] == before["metadata-location"]
    assert head(await anywhere.load("changed")) == 1
    assert sorted(await anywhere.tables()) == ["changed", "moved"]


# --- once ---


async def test_a_commit_sent_again_is_answered_the_same(anywhere: Wire) -> None:
    await furnish(anywhere, "a", "b")
    tx = await begin(anywhere)
    for name in "ab":
        await tx.commit(append(1), name=name)
    first = await tx.publish()
    assert sorted(one["identifier"]["name"] for one in first["results"]) == ["a", "b"]
    for one in first["results"]:
        assert (await anywhere.load(one["identifier"]["name"]))["metadata-location"] == one["metadata-location"]
    await anywhere.commit(append(2, 2, 1), name="a")
    assert await tx.publish() == first
    shown = await tx.shown()
    assert (shown["state"], shown["result"]["results"]) == ("committed", first["results"])
    assert shown["decided-at"] is not None
    assert len((await anywhere.load("b"))["metadata"]["snapshots"]) == 1


async def test_a_commit_whose_answer_was_lost_is_found_by_another_process(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await furnish(wire, "t")
        tx = await begin(wire)
        await tx.commit(append(1))
        first = await tx.publish()
    async with Wire.opened(tmp_path) as wire:
        again = Overlaid(wire, tx.begun)
        assert (await again.shown())["result"]["results"] == first["results"]
        assert await again.publish() == first


async def test_of_many_commits_at_once_one_takes_effect(anywhere: Wire) -> None:
    await furnish(anywhere, "a", "b")
    tx = await begin(anywhere)
    for name in "ab":
        await tx.commit(append(1), name=name)
    answers = await asyncio.gather(*(tx.do("commit") for _ in range(5)))
    assert {answer.status for answer in answers} <= {200, 503}, [answer.body for answer in answers]
    done = await tx.publish()
    assert {answer.body for answer in answers if answer.status == 200} <= {orjson.dumps(done)}
    for name in "ab":
        assert len((await anywhere.load(name))["metadata"]["metadata-log"]) == 1


async def test_a_transaction_that_did_nothing_can_be_committed(anywhere: Wire) -> None:
    tx = await begin(anywhere)
    assert (await tx.publish())["results"] == []
    assert (await tx.shown())["changes"] == []


# --- conflicts ---


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_a_table_that_moved_is_a_conflict_that_names_it(anywhere: Wire, isolation: str) -> None:
    await furnish(anywhere, "a", "b", "c")
    before = {name: await anywhere.load(name) for name in "ac"}
    tx = await begin(anywhere, isolation=isolation)
    for name in "abc":
        assert (await tx.commit(append(1), name=name)).status == 200
    assert (await anywhere.commit(append(9), name="b")).status == 200
    answer = await tx.do("commit")
    assert conflicting(answer) == ["b"]
    [conflict] = answer.error["conflicts"]
    assert (conflict["access"], conflict["expected"] + 1) == ("write", conflict["actual"])
    assert "run it again" in answer.error["message"]
    assert {name: await anywhere.load(name) for name in "ac"} == before
    assert head(await anywhere.load("b")) == 9
    again = await tx.do("commit")
    assert (again.status, again.json()) == (409, answer.json())
    shown = await tx.shown()
    assert (shown["state"], shown["error"]["conflicts"]) == ("failed", answer.error["conflicts"])


@pytest.mark.parametrize("step", ["commit", "prepare"])
async def test_a_refused_transaction_leaves_no_overlay_in_memory(anywhere: Wire, step: str) -> None:
    assert anywhere.service is not None
    overlays = anywhere.service.catalogs["main"].transactions._overlays
    await furnish(anywhere, "t")
    tx = await begin(anywhere)
    assert (await tx.commit(append(1))).status == 200
    assert list(overlays) == [tx.id]
    assert (await anywhere.commit(append(9))).status == 200
    assert conflicting(await tx.do(step)) == ["t"]
    assert not overlays
    # Nor does the commit, sent again.
    assert conflicting(await tx.do("commit")) == ["t"]
    assert not overlays


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_a_name_that_was_taken_meanwhile_is_a_conflict(wire: Wire, isolation: str) -> None:
    await furnish(wire)
    tx = await begin(wire, isolation=isolation)
    await tx.table("t")
    theirs = await wire.table("t")
    assert conflicting(await tx.do("commit")) == ["t"]
    assert await wire.load() == theirs


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("how", ["dropped", "renamed", "replaced"])
async def test_a_table_that_is_gone_is_a_conflict(wire: Wire, isolation: str, how: str) -> None:
    await furnish(wire, "t")
    tx = await begin(wire, isolation=isolation)
    assert (await tx.commit([set_properties(a="b")])).status == 200
    if how == "renamed":
        assert (await wire.post("/tables/rename", rename("t", "u"))).status == 204
    else:
        assert (await wire.delete(table_path())).status == 204
    if how == "replaced":
        await wire.table("t")
    answer = await tx.do("commit")
    assert answer.refusal == CONFLICT
    assert "db.t" in answer.error["message"] or "db.u" in answer.error["message"]


async def test_a_table_that_was_only_read_is_a_conflict_of_a_serializable_transaction(anywhere: Wire) -> None:
    await furnish(anywhere, "read", "written")
    serializable, snapshots = await begin(anywhere), await begin(anywhere, isolation="snapshot")
    for tx in (serializable, snapshots):
        await tx.load("read")
    assert (await serializable.commit(append(1), name="written")).status == 200
    await snapshots.table("other")
    assert (await anywhere.commit(append(9), name="read")).status == 200
    answer = await serializable.do("commit")
    assert conflicting(answer) == ["read"]
    assert [one["access"] for one in answer.error["conflicts"]] == ["read"]
    await snapshots.publish()
    assert sorted(await anywhere.tables()) == ["other", "read", "written"]


async def test_a_table_that_was_read_and_dropped_meanwhile_is_named(anywhere: Wire) -> None:
    await furnish(anywhere, "read", "written")
    tx = await begin(anywhere)
    await tx.load("read")
    await tx.commit(append(1), name="written")
    assert (await anywhere.delete(table_path("read"))).status == 204
    assert conflicting(await tx.do("commit")) == ["read"]


async def test_a_name_that_was_looked_for_in_vain_is_a_dependency(anywhere: Wire) -> None:
    await furnish(anywhere, "t")
    tx = await begin(anywhere)
    assert (await tx.head(table_path("missing"))).status == 404
    await tx.commit(append(1))
    await anywhere.table("missing")
    assert conflicting(await tx.do("commit")) == ["missing"]


async def test_listings_are_no_dependencies(anywhere: Wire) -> None:
    await furnish(anywhere, "t")
    tx = await begin(anywhere)
    assert await tx.tables() == ["t"]
    await tx.get("/namespaces")
    await tx.commit(append(1))
    await anywhere.table("more")
    await tx.publish()


async def test_write_skew_is_refused_or_allowed_as_was_asked(anywhere: Wire) -> None:
    """Each of two transactions reads both tables and writes the one that the other does not."""
    await furnish(anywhere, "a", "b")
    for isolation in ISOLATIONS:
        pair = [await begin(anywhere, isolation=isolation) for _ in "ab"]
        heads = [head(one) for one in await batch(pair[0], "a", "b")]
        await batch(pair[1], "a", "b")
        for tx, name, parent in zip(pair, "ab", heads, strict=True):
            number = (parent or 0) + 1
            assert (await tx.commit(append(number, number, parent), name=name)).status == 200
        await pair[0].publish()
        second = await pair[1].do("commit")
        if isolation == "serializable":
            assert conflicting(second) == ["a"]
        else:
            assert second.status == 200, second.body


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_a_lost_update_is_refused_in_either_isolation(wire: Wire, isolation: str) -> None:
    await furnish(wire, "t")
    pair = [await begin(wire, isolation=isolation) for _ in range(2)]
    for number, tx in enumerate(pair, 1):
        assert (await tx.commit(append(number))).status == 200
    await pair[0].publish()
    assert conflicting(await pair[1].do("commit")) == ["t"]
    assert head(await wire.load()) == 1


# --- metadata changes are rebased under snapshot isolation, if nobody has changed the same parts ---

ADD_COLUMN: list[Json] = [{"action": "add-schema", "schema": WIDER}, {"action": "set-current-schema", "schema-id": -1}]
ADD_SPEC: list[Json] = [
    {"action": "add-spec", "spec": {"fields": [{"source-id": 1, "transform": "identity", "name": "p"}]}},
    {"action": "set-default-spec", "spec-id": -1},
]
ADD_ORDER: list[Json] = [
    {
        "action": "add-sort-order",
        "sort-order": {
            "order-id": 1,
            "fields": [{"source-id": 1, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}],
        },
    },
    {"action": "set-default-sort-order", "sort-order-id": -1},
]


def statistics(path: str) -> list[Json]:
    file = {
        "snapshot-id": 1,
        "statistics-path": path,
        "file-size-in-bytes": 1,
        "file-footer-size-in-bytes": 1,
        "blob-metadata": [],
    }
    return [{"action": "set-statistics", "statistics": file}]


METADATA_CHANGES: dict[str, tuple[list[Json], list[Json]]] = {
    "property": ([set_properties(n="1")], [set_properties(n="1", other="x")]),
    "property removed": ([set_properties(n="1")], [{"action": "remove-properties", "removals": ["n"]}]),
    "schema": (ADD_COLUMN, [{"action": "add-schema", "schema": WIDER}]),
    "partition spec": (ADD_SPEC, ADD_SPEC),
    "sort order": (ADD_ORDER, ADD_ORDER),
    "statistics": (statistics("file:///mine"), statistics("file:///theirs")),
    "format version": (
        [{"action": "upgrade-format-version", "format-version": 3}],
        [{"action": "upgrade-format-version", "format-version": 3}],
    ),
}
"""Two changes of the same part of a table: what a transaction stages, and what somebody else commits meanwhile."""


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_of_two_transactions_that_increment_a_property_one_is_refused(anywhere: Wire, isolation: str) -> None:
    await furnish(anywhere, "t")
    assert (await anywhere.commit([set_properties(n="0")])).status == 200
    pair = [await begin(anywhere, isolation=isolation) for _ in range(2)]
    for tx in pair:
        n = int(properties(await tx.load())["n"])
        assert (await tx.commit([set_properties(n=str(n + 1))])).status == 200
    await pair[0].publish()
    answer = await pair[1].do("commit")
    assert conflicting(answer) == ["t"]
    assert properties(await anywhere.load())["n"] == "1"
    assert (await pair[1].shown())["state"] == "failed"
    assert (await pair[1].do("commit")).json() == answer.json()


async def test_a_serializable_transaction_conflicts_with_any_change_of_a_table_it_loaded(anywhere: Wire) -> None:
    """What was set may follow from anything that the load showed, not only from the part that is set."""
    await furnish(anywhere, "t")
    tx = await begin(anywhere)
    await tx.load()
    assert (await tx.commit([set_properties(mine="1")])).status == 200
    assert (await anywhere.commit([set_properties(theirs="1")])).status == 200
    assert conflicting(await tx.do("commit")) == ["t"]
    assert "mine" not in properties(await anywhere.load())


async def test_a_staged_commit_counts_as_a_load_because_its_answer_shows_the_table(anywhere: Wire) -> None:
    await furnish(anywhere, "t")
    tx = await begin(anywhere)
    answer = await tx.commit([set_properties(mine="1")])
    assert properties(answer.json())["mine"] == "1"
    assert (await anywhere.commit(append(1))).status == 200
    assert conflicting(await tx.do("commit")) == ["t"]


async def test_a_name_that_was_free_stays_a_dependency_after_it_was_created_and_dropped_inside(anywhere: Wire) -> None:
    await furnish(anywhere, "t")
    tx = await begin(anywhere)
    assert (await tx.head(table_path("missing"))).status == 404
    await tx.table("missing")
    assert (await tx.delete(table_path("missing"))).status == 204
    assert (await tx.commit(append(1))).status == 200
    await anywhere.table("missing")
    assert conflicting(await tx.do("commit")) == ["missing"]


async def test_metadata_changes_are_rebased_past_changes_of_other_parts(anywhere: Wire) -> None:
    await furnish(anywhere, "t")
    tx = await begin(anywhere, isolation="snapshot")
    schema = {"type": "assert-current-schema-id", "current-schema-id": 0}
    assert (await tx.commit(ADD_COLUMN, [schema])).status == 200
    assert (await tx.commit([set_properties(a="mine")])).status == 200
    await anywhere.commit([set_properties(b="theirs")])
    await anywhere.commit(append(1))
    newer = await anywhere.load()
    done = await tx.publish()
    loaded = await anywhere.load()
    assert {"a": "mine", "b": "theirs"}.items() <= properties(loaded).items()
    assert loaded["metadata"]["current-schema-id"] == 1
    assert head(loaded) == 1
    assert loaded["metadata"]["metadata-log"][-1]["metadata-file"] == newer["metadata-location"]
    assert done["results"][0]["metadata-location"] == loaded["metadata-location"]


@pytest.mark.parametrize("part", METADATA_CHANGES)
async def test_metadata_changes_conflict_with_changes_of_the_same_part(wire: Wire, part: str) -> None:
    mine, theirs = METADATA_CHANGES[part]
    await furnish(wire, "t")
    assert (await wire.commit([*append(1), set_properties(n="0")])).status == 200
    tx = await begin(wire, isolation="snapshot")
    staged = await tx.commit(mine)
    assert staged.status == 200, staged.body
    assert (await wire.commit(theirs)).status == 200
    before = await wire.load()
    answer = await tx.do("commit")
    assert conflicting(answer) == ["t"]
    [conflict] = answer.error["conflicts"]
    assert conflict["changed"] and conflict["changed"][0] in answer.error["message"]
    assert await wire.load() == before


async def test_metadata_that_fits_no_longer_is_a_conflict_and_not_a_bad_request(wire: Wire) -> None:
    """A partition spec over a column that somebody else has dropped meanwhile."""
    await furnish(wire, "t")
    tx = await begin(wire, isolation="snapshot")
    spec = {"fields": [{"source-id": 3, "transform": "identity", "name": "p"}]}
    update: list[Json] = [{"action": "add-spec", "spec": spec}, {"action": "set-default-spec", "spec-id": -1}]
    assert (await tx.commit(update)).status == 200
    narrow = {**SCHEMA, "fields": SCHEMA["fields"][:2]}
    dropped: list[Json] = [
        {"action": "add-schema", "schema": narrow},
        {"action": "set-current-schema", "schema-id": -1},
    ]
    assert (await wire.commit(dropped)).status == 200
    assert conflicting(await tx.do("commit")) == ["t"]


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_metadata_alone_is_a_conflict_if_its_requirements_hold_no_more(anywhere: Wire, isolation: str) -> None:
    await furnish(anywhere, "t")
    tx = await begin(anywhere, isolation=isolation)
    schema = {"type": "assert-current-schema-id", "current-schema-id": 0}
    assert (await tx.commit([set_properties(a="b")], [schema])).status == 200
    assert (await anywhere.commit(ADD_COLUMN)).status == 200
    answer = await tx.do("commit")
    assert conflicting(answer) == ["t"]
    if isolation == "snapshot":
        assert "schema" in answer.error["message"]
    assert "a" not in properties(await anywhere.load())


@pytest.mark.parametrize("beside", ["data", "document", "new-table"])
async def test_under_snapshot_isolation_metadata_is_rebased_whatever_else_is_changed(wire: Wire, beside: str) -> None:
    await furnish(wire, "meta", "data")
    answers = {}
    for isolation in ISOLATIONS:
        tx = await begin(wire, isolation=isolation)
        assert (await tx.commit([set_properties(**{isolation: "yes"})], name="meta")).status == 200
        if beside == "data":
            assert (await tx.commit(append(1), name="data")).status == 200
        elif beside == "document":
            assert (await tx.put("position", {"at": 1})).status == 200
        else:
            await tx.table("new")
        assert (await wire.commit([set_properties(**{f"not-{isolation}": "x"})], name="meta")).status == 200
        answers[isolation] = await tx.do("commit")
    assert conflicting(answers["serializable"]) == ["meta"]
    assert answers["snapshot"].status == 200
    found = properties(await wire.load("meta"))
    assert found["snapshot"] == "yes" and "serializable" not in found


# --- namespaces ---


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("what", ["table", "view", "namespace", "rename"])
async def test_what_is_made_in_a_namespace_that_was_dropped_meanwhile_is_a_conflict(
    wire: Wire, isolation: str, what: str
) -> None:
    await furnish(wire, "t")
    await wire.namespace("other")
    tx = await begin(wire, isolation=isolation)
    match what:
        case "table":
            await tx.table("new", "other")
        case "view":
            body = {"name": "new", "schema": SCHEMA, "view-version": VIEW_VERSION, "properties": {}}
            assert (await tx.post("/namespaces/other/views", body)).status == 200
        case "namespace":
            await tx.namespace("other", "below")
        case _:
            moved = {**rename("t", "new"), "destination": {"namespace": ["other"], "name": "new"}}
            assert (await tx.post("/tables/rename", moved)).status == 204
    assert (await wire.delete("/namespaces/other")).status == 204
    answer = await tx.do("commit")
    assert answer.refusal == CONFLICT
    assert "other" in answer.error["message"]
    assert (await wire.get("/namespaces")).json()["namespaces"] == [["db"]]
    await wire.namespace("other")
    assert await wire.tables("other") == [], "nothing was left behind where the namespace was"
    assert (await wire.get("/namespaces?parent=other")).json()["namespaces"] == []


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_a_namespace_dropped_inside_is_not_dropped_over_what_others_made_in_it(
    anywhere: Wire, isolation: str
) -> None:
    await furnish(anywhere)
    await anywhere.namespace("other")
    tx = await begin(anywhere, isolation=isolation)
    assert (await tx.delete("/namespaces/other")).status == 204
    await anywhere.table("theirs", "other")
    answer = await tx.do("commit")
    assert answer.status == 409, answer.body
    assert await anywhere.tables("other") == ["theirs"]
    assert (await anywhere.delete(table_path("theirs", "other"))).status == 204
    assert (await anywhere.delete("/namespaces/other")).status == 204


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_a_drop_that_was_given_up_does_not_keep_others_from_creating(wire: Wire, isolation: str) -> None:
    """A namespace is marked before it is dropped, and such a mark may be left behind."""
    await furnish(wire, "t")
    await wire.namespace("other")
    dropper = await begin(wire, isolation=isolation)
    assert (await dropper.delete("/namespaces/other")).status == 204
    await wire.table("theirs", "other")
    assert (await dropper.do("commit")).status == 409
    later = await begin(wire, isolation=isolation)
    await later.table("mine", "other")
    await later.publish()
    assert sorted(await wire.tables("other")) == ["mine", "theirs"]


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_a_drop_does_not_depend_on_the_properties_of_its_namespace(wire: Wire, isolation: str) -> None:
    await furnish(wire, "a")
    tx = await begin(wire, isolation=isolation)
    assert (await tx.delete(table_path("a"))).status == 204
    assert (await wire.post("/namespaces/db/properties", {"updates": {"team": "finance"}})).status == 200
    await tx.publish()
    assert (await wire.head(table_path("a"))).status == 404


async def test_whoever_wins_between_dropping_and_creating_nothing_is_orphaned(anywhere: Wire) -> None:
    await furnish(anywhere)
    outcomes = set()
    for number in range(6):
        name = f"n{number}"
        await anywhere.namespace(name)
        dropper = await begin(anywhere, isolation=ISOLATIONS[number % 2])
        creator = await begin(anywhere, isolation=ISOLATIONS[number // 2 % 2])
        assert (await dropper.delete(f"/namespaces/{name}")).status == 204
        await creator.table("t", name)
        dropped, created = await asyncio.gather(dropper.do("commit"), creator.do("commit"))
        there = (await anywhere.head(f"/namespaces/{name}")).status == 204
        assert {dropped.status, created.status} <= {200, 409, 503}, (dropped.body, created.body)
        assert not (dropped.status == created.status == 200)
        assert there == (dropped.status != 200)
        if created.status == 200:
            assert await anywhere.tables(name) == ["t"]
        outcomes.add((dropped.status, created.status))
    assert outcomes


# --- two phases, time, states ---


async def test_what_is_prepared_will_be_committed(anywhere: Wire) -> None:
    await furnish(anywhere, "a", "read")
    tx = await begin(anywhere)
    await tx.load("read")
    await tx.commit(append(1), name="a")
    for _ in range(2):
        answer = await tx.do("prepare")
        assert (answer.status, answer.json()["state"]) == (200, "prepared"), answer.body
    assert head(await anywhere.load("a")) is None
    refused = await tx.commit([set_properties(a="b")], name="a")
    assert refused.refusal == (400, "BadRequestException")
    assert "commit or abort" in refused.error["message"]
    assert head(await tx.load("a")) == 1, "it can still be looked at"
    await tx.publish()
    assert head(await anywhere.load("a")) == 1


async def test_what_is_prepared_is_held_against_others_until_it_is_aborted(wire: Wire) -> None:
    await furnish(wire, "t")
    tx = await begin(wire)
    await tx.commit(append(1))
    assert (await tx.do("prepare")).status == 200
    other = await wire.commit(append(2))
    assert other.status == 503, other.body
    assert other.header("Retry-After") is not None
    assert (await tx.do("abort")).json()["state"] == "aborted"
    assert (await wire.commit(append(2))).status == 200
    assert (await tx.do("commit")).refusal == (400, "BadRequestException")


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_a_conflict_is_found_when_it_is_prepared(anywhere: Wire, isolation: str) -> None:
    await furnish(anywhere, "t")
    tx = await begin(anywhere, isolation=isolation)
    await tx.commit(append(1))
    await anywhere.commit(append(2))
    assert conflicting(await tx.do("prepare")) == ["t"]
    assert conflicting(await tx.do("commit")) == ["t"]


async def test_a_transaction_that_is_not_renewed_expires(anywhere: Wire) -> None:
    await furnish(anywhere, "t")
    short = await begin(anywhere, ttl_seconds=0.2)
    await short.commit(append(1))
    kept = await begin(anywhere, ttl_seconds=600)
    renewed = await kept.do("renew", {"ttl-seconds": 1_200})
    assert renewed.json()["expires-at"] > kept.begun["expires-at"]
    await _expired(short)
    for answer in (
        await short.get(table_path()),
        await short.commit(append(2)),
        await short.do("commit"),
        await short.do("renew", {"ttl-seconds": 60}),
        await anywhere.client.send("GET", f"/v1/config?warehouse={short.begun['warehouse']}"),
    ):
        assert answer.refusal == (400, "BadRequestException")
        assert "expired" in answer.error["message"] and "Begin a new one" in answer.error["message"]
    assert head(await anywhere.load()) is None
    await kept.publish()


async def _expired(tx: Overlaid) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (await tx.get(table_path())).status == 200:
            await asyncio.sleep(0.02)


async def test_transactions_are_listed_by_state(anywhere: Wire) -> None:
    await furnish(anywhere, "t")
    made: dict[str, Overlaid] = {}
    for state in ("open", "prepared", "committed", "aborted"):
        tx = made[state] = await begin(anywhere, properties={"is": state})
        if state != "open":
            step = {"prepared": "prepare", "committed": "commit", "aborted": "abort"}[state]
            assert (await tx.do(step)).status == 200
    for state, tx in made.items():
        listed = (await anywhere.get(f"/transactions?state={state}")).json()["transactions"]
        assert [one["state"] for one in listed] == [state] * len(listed)
        assert tx.id in [one["transaction-id"] for one in listed]
        assert {one["properties"].get("is") for one in listed if one["transaction-id"] == tx.id} == {state}
    both = (await anywhere.get("/transactions?state=open,prepared")).json()["transactions"]
    assert {one["transaction-id"] for one in both} == {made["open"].id, made["prepared"].id}
    assert (await anywhere.get("/transactions?state=lost")).refusal == (400, "BadRequestException")
    found: list[str] = []
    token: str | None = ""
    while token is not None:
        page = (await anywhere.get(f"/transactions?state=open,prepared&pageToken={token}&pageSize=1")).json()
        assert len(page["transactions"]) <= 1, "a page may be short, and still have a successor"
        found += [one["transaction-id"] for one in page["transactions"]]
        token = page["next-page-token"]
    assert sorted(found) == sorted([made["open"].id, made["prepared"].id])


async def test_what_is_staged_and_read_is_shown(anywhere: Wire) -> None:
    await furnish(anywhere, "read", "written")
    tx = await begin(anywhere)
    read = await tx.load("read")
    staged = (await tx.commit(append(1), name="written", key=new_key())).json()
    changes = (await tx.shown())["changes"]
    [write] = [one for one in changes if one["access"] == "write"]
    assert write["identifier"] == {"namespace": ["db"], "name": "written"}
    assert (write["base"] + 1, write["metadata-location"]) == (write["revision"], staged["metadata-location"])
    table_id = read["metadata"]["table-uuid"]
    [dependency] = [one for one in changes if one["access"] == "read" and one["cell"].endswith(table_id)]
    assert dependency["base"] == dependency["revision"] == 1


# --- afterwards ---


async def test_an_ended_transaction_answers_400_with_what_became_of_it(anywhere: Wire) -> None:
    await furnish(anywhere, "t", "u")
    committed, aborted, failed = [await begin(anywhere) for _ in range(3)]
    for tx, name in ((committed, "t"), (aborted, "t"), (failed, "u")):
        assert (await tx.commit(append(1), name=name)).status == 200
    await anywhere.commit(append(9), name="u")
    await committed.publish()
    await aborted.do("abort")
    assert conflicting(await failed.do("commit")) == ["u"]
    for tx, word in ((committed, "is committed"), (aborted, "was aborted"), (failed, "failed at its commit")):
        for answer in (
            await tx.commit([set_properties(a="b")]),
            await tx.commit(append(7, 7), key=new_key()),
            await tx.commit_all(change("t", append(8, 8))),
            await tx.create("new"),
            await tx.create("staged", **{"stage-create": True}),
            await tx.delete(table_path()),
            await tx.post("/tables/rename", rename("t", "w")),
            await tx.post("/namespaces", {"namespace": ["n"]}),
            await tx.put("position", {"a": 1}),
        ):
            assert answer.refusal == (400, "BadRequestException"), (word, answer.body)
            assert word in answer.error["message"] and "Begin a new one" in answer.error["message"]
        report = {"report-type": "commit-report", "table-name": "db.t"}
        assert (await tx.post(f"{table_path()}/metrics", report)).status == 204
        if tx is not committed:
            assert (await tx.get(table_path())).refusal == (400, "BadRequestException")
            assert (await tx.head(table_path())).status == 400


async def test_for_a_while_reads_are_answered_from_what_was_committed(anywhere: Wire) -> None:
    await furnish(anywhere, "t", "gone")
    tx = await begin(anywhere)
    await tx.commit(append(1))
    await tx.table("new")
    await tx.delete(table_path("gone"))
    await tx.publish()
    mine = await tx.load()
    await anywhere.commit(append(2, 2, 1))
    assert head(await anywhere.load()) == 2
    assert (await tx.load()) == mine
    assert (head(mine), properties(mine)["gc.enabled"]) == (1, "false")
    assert (await tx.head(table_path("new"))).status == 204
    assert (await tx.head(table_path("gone"))).status == 404
    config = await anywhere.client.send("GET", f"/v1/config?warehouse={tx.begun['warehouse']}")
    assert config.status == 200


@pytest.mark.parametrize("end", ["commit", "abort", "expire"])
async def test_listings_of_an_ended_transaction_are_empty(
    anywhere: Wire, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that has it configured as a catalog can still list all its catalogs in one query."""
    await furnish(anywhere, "t")
    tx = await begin(anywhere, ttl_seconds=0.2 if end == "expire" else 600)
    await tx.commit(append(1))
    if end == "expire":
        await _expired(tx)
    else:
        assert (await tx.do(end)).status == 200
    # The time for which the reads of a committed transaction are answered is over.
    monkeypatch.setattr("lakepact.catalog.overlay.GRACE_MS", -3_600_000)
    for path, field in (
        ("/namespaces", "namespaces"),
        ("/namespaces?parent=db", "namespaces"),
        ("/namespaces?pageToken=&pageSize=10", "namespaces"),
        ("/namespaces/db/tables", "identifiers"),
        ("/namespaces/db/views", "identifiers"),
    ):
        answer = await tx.get(path)
        assert (answer.status, answer.json()) == (200, {field: [], "next-page-token": None}), path
    for refused in (
        await tx.get(table_path()),
        await tx.get("/namespaces/db"),
        await tx.commit([set_properties(a="b")]),
        await tx.delete(table_path()),
        await tx.post("/namespaces", {"namespace": ["made"]}),
    ):
        assert refused.refusal == (400, "BadRequestException")
    assert (await anywhere.get("/namespaces")).json()["namespaces"] == [["db"]]


async def test_only_its_owner_lists_an_ended_transaction(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        await furnish(people.root, "t")
        await people.root.grant("everyone", "read", **on_namespace())
        tx = (await people.ann.post("/transactions")).json()
        assert (await people.ann.post(f"/transactions/{tx['transaction-id']}/abort")).status == 200
        for path in ("/namespaces", "/namespaces/db/tables"):
            assert (await people.ann.at(tx["prefix"]).get(path)).status == 200
            assert (await people.eve.at(tx["prefix"]).get(path)).refusal == (403, "ForbiddenException")


@pytest.mark.parametrize("state", ["prepared", "committed"])
async def test_a_statement_that_is_in_is_a_success_when_it_is_sent_again(anywhere: Wire, state: str) -> None:
    """Its answer was lost. If it were refused now, the client would delete files that are live, or soon will be."""
    await furnish(anywhere, "t", "u")
    tx = await begin(anywhere)
    sent, other = append(1), append(2)
    keyed = new_key()
    made = creation(updates=[{"action": "assign-uuid", "uuid": str(uuid.uuid4())}, *append(3)])
    assert (await tx.commit(sent, key=keyed)).status == 200
    assert (await tx.commit_all(change("u", other), change("t", [set_properties(a="b")]))).status == 204
    assert (await tx.post(table_path("made"), made)).status == 200
    assert (await tx.do("prepare" if state == "prepared" else "commit")).status == 200
    for answer in (await tx.commit(sent), await tx.commit(sent, key=keyed)):
        assert answer.status == 200, answer.body
        assert head(answer.json()) == 1
    assert (await tx.commit_all(change("u", other), change("t", [set_properties(a="b")]))).status == 204
    assert (await tx.post(table_path("made"), made)).status == 200
    assert (await tx.commit(append(4, 4))).refusal == (400, "BadRequestException")
    assert (await tx.commit_all(change("u", other), change("t", append(5, 5)))).status == 400
    await tx.publish()
    assert [len((await anywhere.load(name))["metadata"]["snapshots"]) for name in ("t", "u", "made")] == [1, 1, 1]


async def test_a_statement_of_an_aborted_transaction_is_refused_when_it_is_sent_again(anywhere: Wire) -> None:
    await furnish(anywhere, "t")
    tx, sent = await begin(anywhere), append(1)
    assert (await tx.commit(sent)).status == 200
    await tx.do("abort")
    assert (await tx.commit(sent)).refusal == (400, "BadRequestException")


# --- receipts ---


async def test_a_commit_leaves_one_receipt_for_each_table_and_none_for_what_was_staged(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await furnish(wire, "changed", "renamed", "dropped", "both")
        base = await wire.load("changed")
        tx = await begin(wire)
        for number in range(3):
            parent = number or None
            await tx.commit(append(number + 1, number + 1, parent), name="changed")
        await tx.table("made")
        await tx.table("passing")
        await tx.delete(table_path("passing"))
        await tx.post("/tables/rename", rename("renamed", "elsewhere"))
        await tx.delete(table_path("dropped"))
        await tx.commit(append(1), name="both")
        await tx.delete(table_path("both"))
        await tx.namespace("more")
        await tx.put("position", {"at": 1})
        answer = await tx.do("commit", {"source": {"kind": "job", "client": "nightly"}})
        assert answer.status == 200, answer.body
        done = {one["identifier"]["name"]: one["metadata-location"] for one in answer.json()["results"]}
        gone = await begin(wire)
        await gone.commit(append(9, 9), name="changed")
        await gone.do("abort")
    mine = [one for one in receipts(wire) if one["transaction-id"] == tx.id]
    assert sorted((one["kind"], one["change"], one["name"] or "") for one in mine) == [
        ("namespace", "create", ""),
        ("table", "commit", "changed"),
        ("table", "create", "made"),
        ("table", "drop", "both"),
        ("table", "drop", "dropped"),
        ("table", "rename", "elsewhere"),
    ]
    assert {one["transaction-tables"] for one in mine} == {6}
    assert {one["source"]["client"] for one in mine} == {"nightly"}
    [changed] = [one for one in mine if one["name"] == "changed"]
    assert changed["metadata-location"] == done["changed"]
    assert changed["previous-metadata-location"] == changed["base-metadata-location"] == base["metadata-location"]
    assert changed["snapshot-id"] == 3
    assert len(receipts(wire)) == 5 + 6


async def test_what_a_dropped_table_leaves_behind_says_nothing_of_the_staging(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await furnish(wire, "t")
        tx = await begin(wire)
        await tx.commit([set_properties(a="b")])
        await tx.delete(table_path())
        await tx.publish()
    store = await open_store(wire.settings.store)
    try:
        [note] = (await store.scan("main/dropped")).cells
        assert note.value is not None and "staged" not in note.value
        assert not (await store.scan("main/answers")).cells
    finally:
        await store.close()


async def test_the_predecessor_of_a_view_is_one_that_others_have_seen(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace("db")
        view = {"name": "v", "schema": SCHEMA, "view-version": VIEW_VERSION, "properties": {}}
        before = (await wire.post("/namespaces/db/views", view)).json()["metadata-location"]
        tx = await begin(wire)
        for number in range(3):
            changed = await tx.post("/namespaces/db/views/v", {"updates": [set_properties(n=str(number))]})
            assert changed.status == 200, changed.body
        await tx.publish()
    [receipt] = [one for one in receipts(wire) if one["transaction-id"] == tx.id]
    assert receipt["previous-metadata-location"] == before


@pytest.mark.parametrize("end", ["abort", "commit", "nothing"])
async def test_where_new_tables_are_is_remembered_however_it_ends(tmp_path: Path, end: str) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace("db")
        tx = await begin(wire)
        made = [(await tx.table(name))["metadata"]["location"] for name in ("a", "b")]
        await tx.commit([set_properties(a="b")], name="a")
        if end != "nothing":
            await tx.do(end)
    store = await open_store(wire.settings.store)
    try:
        notes = (await store.scan(f"main/staged/{tx.id}")).cells
        assert sorted((note.value or {})["location"] for note in notes) == sorted(made)
        assert {(note.value or {})["transaction-id"] for note in notes} == {tx.id}
    finally:
        await store.close()
