"""What a receipt says of inputs: what the server has seen is verified, what a committer says is declared."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.wire.overlays import begin, furnish
from tests.wire.people import house, on_namespace
from tests.wire.test_receipts import receipts
from tests.wire.world import Json, Wire, append, set_properties, table_path


def _input(table: str, loaded: Json, **more: Any) -> Json:
    snapshot_id = loaded["metadata"].get("current-snapshot-id")
    uuid = loaded["metadata"]["table-uuid"]
    return {"table": table, "table-uuid": uuid, "snapshot-id": str(snapshot_id), "used-by": ["db.made"], **more}


def _run(*inputs: Any, **more: Any) -> Json:
    return {"source": {"kind": "pipeline", "pipeline": "close", "run-id": "r1", "inputs": list(inputs), **more}}


async def _told(folder: Path, reads: bool, says: Any, **begun: Any) -> Json:
    """The receipt of a transaction that makes `made`, has loaded `raw` or not, and says this about it."""
    async with Wire.opened(folder) as wire:
        await furnish(wire, "raw", "made", "ledger")
        for number in (1, 2):
            assert (await wire.commit(append(number, number, number - 1 or None), name="raw")).status == 200
        raw, ledger = await wire.load("raw"), await wire.load("ledger")
        tx = await begin(wire, **begun)
        if reads:
            await tx.load("raw")
        await tx.commit([set_properties(a="b")], name="made")
        answer = await tx.do("commit", says(raw, ledger))
        assert answer.status == 200, answer.body
    [mine] = [one for one in receipts(wire) if one["transaction-id"] == tx.id]
    assert mine["name"] == "made" and "lineage" not in mine["source"]
    return mine


SEEN = {
    "what was loaded": lambda raw, ledger: _run(_input("db.raw", raw)),
    "at an earlier snapshot": lambda raw, ledger: _run(_input("db.raw", raw, **{"snapshot-id": "1"})),
}
CLAIMED = {
    "another table": lambda raw, ledger: _run(_input("db.ledger", ledger)),
    "one more": lambda raw, ledger: _run(_input("db.raw", raw), _input("db.ledger", ledger)),
    "another name": lambda raw, ledger: _run(_input("finance.ledger", raw)),
    "no such snapshot": lambda raw, ledger: _run(_input("db.raw", raw, **{"snapshot-id": "99"})),
    "no id": lambda raw, ledger: _run({"table": "db.raw"}),
    "no inputs": lambda raw, ledger: _run(),
    "nonsense": lambda raw, ledger: _run("db.raw", 7, None),
    "the word itself": lambda raw, ledger: _run(_input("db.ledger", ledger), lineage="verified"),
    "as something else": lambda raw, ledger: {"source": {"kind": "job", "inputs": [_input("db.ledger", ledger)]}},
}


@pytest.mark.parametrize("how", SEEN)
async def test_inputs_that_the_transaction_has_loaded_are_verified(tmp_path: Path, how: str) -> None:
    told = await _told(tmp_path, True, SEEN[how])
    assert told["lineage"] == "verified" and [one["table"] for one in told["inputs"]] == ["db.raw"]


@pytest.mark.parametrize("how", CLAIMED)
async def test_t_forge_3_what_the_server_has_not_seen_is_declared(tmp_path: Path, how: str) -> None:
    told = await _told(tmp_path, True, CLAIMED[how])
    assert told["lineage"] == "declared-unverified"


@pytest.mark.parametrize("how", SEEN)
async def test_under_snapshot_isolation_inputs_are_verified_that_the_transaction_has_in_sight(
    tmp_path: Path, how: str
) -> None:
    assert (await _told(tmp_path, True, SEEN[how], isolation="snapshot"))["lineage"] == "verified"


@pytest.mark.parametrize("how", ["another name", "no such snapshot", "no id", "no inputs", "nonsense"])
async def test_t_forge_3_what_the_transaction_has_not_in_sight_is_declared(tmp_path: Path, how: str) -> None:
    assert (await _told(tmp_path, True, CLAIMED[how], isolation="snapshot"))["lineage"] == "declared-unverified"


async def test_t_forge_3_what_the_committer_may_not_see_is_declared(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        for namespace in ("pub", "secret"):
            await people.root.namespace(namespace)
            await people.root.table("t", namespace)
        await people.root.grant("user:bob", "write", **on_namespace("pub"))
        inputs = {name: _input(f"{name}.t", await people.root.load("t", name)) for name in ("pub", "secret")}
        told = {}
        for name, one in inputs.items():
            begun = await people.bob.post("/transactions", {"isolation": "snapshot"})
            transaction = begun.json()["transaction-id"]
            inside = people.bob.at(f"main@{transaction}")
            changed = {"requirements": [], "updates": [set_properties(a=name)]}
            assert (await inside.post(table_path("t", "pub"), changed)).status == 200
            says = _run({**one, "snapshot-id": None})
            assert (await people.bob.post(f"/transactions/{transaction}/commit", says)).status == 200
            told[transaction] = name
    found = {told.get(one["transaction-id"]): one["lineage"] for one in receipts(people.root)}
    assert {name: found[name] for name in inputs} == {"pub": "verified", "secret": "declared-unverified"}


async def test_that_nothing_was_read_is_verified_if_nothing_else_was_loaded(tmp_path: Path) -> None:
    assert (await _told(tmp_path, False, CLAIMED["no inputs"]))["lineage"] == "verified"


async def test_a_prepared_transaction_is_no_different(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await furnish(wire, "raw", "made")
        tx = await begin(wire)
        raw = await tx.load("raw")
        await tx.commit([set_properties(a="b")], name="made")
        assert (await tx.do("prepare")).status == 200
        says = _run(_input("db.raw", raw, **{"snapshot-id": None}))
        assert (await tx.do("commit", says)).status == 200
        assert (await tx.do("commit", says)).status == 200, "and again"
    [mine] = [one for one in receipts(wire) if one["transaction-id"] == tx.id]
    assert mine["lineage"] == "verified"


@pytest.mark.parametrize("kind", ["admin", "grpc", "unknown", 7, ["pipeline"]])
async def test_t_forge_3_the_servers_own_words_are_not_for_clients(wire: Wire, kind: Any) -> None:
    await furnish(wire, "made")
    tx = await begin(wire)
    await tx.commit([set_properties(a="b")], name="made")
    assert (await tx.do("commit", {"source": {"kind": kind}})).status == 400
    assert (await tx.do("commit", {"source": {"kind": "job"}})).status == 200
    assert (await wire.get(table_path("made"))).status == 200


async def test_many_inputs_are_looked_at_and_a_commit_that_was_made_is_not_refused_for_them(wire: Wire) -> None:
    await furnish(wire, "raw", "made")
    raw = _input("db.raw", await wire.load("raw"), **{"snapshot-id": None})
    tx = await begin(wire, isolation="snapshot")
    await tx.commit([set_properties(a="b")], name="made")
    others = [{**raw, "table-uuid": str(uuid.uuid4())} for _ in range(999)]
    for _ in range(2):
        assert (await tx.do("commit", _run(raw, *others))).status == 200


async def test_that_a_new_table_is_made_of_nothing_is_verified(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        tx = await begin(wire)
        assert (await tx.create("made")).status == 200
        assert (await tx.do("commit", _run())).status == 200
    [mine] = [one for one in receipts(wire) if one["transaction-id"] == tx.id]
    assert mine["lineage"] == "verified"


async def _committed(folder: Path, source: Json, *made: str, isolation: str = "serializable") -> dict[str, Json]:
    """The receipts of a transaction that writes these tables and has loaded `raw`, by table."""
    async with Wire.opened(folder) as wire:
        await furnish(wire, "raw", *made)
        tx = await begin(wire, isolation=isolation)
        await tx.load("raw")
        for name in made:
            await tx.commit([set_properties(a="b")], name=name)
        assert (await tx.do("commit", {"source": source})).status == 200
    return {one["name"]: one for one in receipts(wire) if one["transaction-id"] == tx.id}


async def test_a_table_has_the_inputs_of_its_own_stage(tmp_path: Path) -> None:
    def read(table: str, *stages: str) -> Json:
        return {"table": f"db.{table}", "used-by": [f"db.{stage}" for stage in stages]}

    inputs = [read("r1", "o1"), read("r2", "o2"), read("o1", "o3", "o4"), read("o2", "o3"), read("looked_up")]
    found = await _committed(tmp_path, _run(*inputs)["source"], "o1", "o2", "o3", "o4")
    tables = {name: [one["table"] for one in receipt["inputs"]] for name, receipt in found.items()}
    assert tables == {
        "o1": ["db.r1", "db.looked_up"],
        "o2": ["db.r2", "db.looked_up"],
        "o3": ["db.o1", "db.o2", "db.looked_up"],
        "o4": ["db.o1", "db.looked_up"],
    }
    assert found["o4"]["inputs"][0]["used-by"] == ["db.o4"], "and no names of other tables"


async def test_quality_is_that_of_the_tables_own_checks(tmp_path: Path) -> None:
    def check(table: str, status: str, **more: Any) -> Json:
        return {"table": table, "name": f"{table} {status}", "status": status, "rows": 5, "violations": 3, **more}

    checks = [
        check("db.good", "passed"),
        check("db.doubtful", "passed"),
        check("db.doubtful", "warned"),
        check("clean", "dropped", **{"used-by": ["db.made_of_a_view"]}),
    ]
    source = _run(checks=checks, quality="passed")["source"]
    found = await _committed(tmp_path, source, "good", "doubtful", "made_of_a_view", "unchecked")
    assert {name: one["quality"] for name, one in found.items()} == {
        "good": "passed",
        "doubtful": "warned",
        "made_of_a_view": "warned",
        "unchecked": "not-checked",
    }
    assert {name: [one["position"] for one in receipt["checks"]] for name, receipt in found.items()} == {
        "good": [0],
        "doubtful": [1, 2],
        "made_of_a_view": [3],
        "unchecked": [],
    }


async def test_a_transaction_that_names_no_inputs_lists_what_it_has_loaded(tmp_path: Path) -> None:
    found = (await _committed(tmp_path, {"kind": "spark"}, "made"))["made"]
    assert found["lineage"] == "loaded"
    assert [(one["table"], one["used-by"]) for one in found["inputs"]] == [("db.raw", [])]


async def test_under_snapshot_isolation_nobody_claims_that_nothing_was_read(tmp_path: Path) -> None:
    for kind in ("spark", "pipeline"):
        found = (await _committed(tmp_path / kind, {"kind": kind}, "made", isolation="snapshot"))["made"]
        assert (found["lineage"], found["inputs"]) == ("none", [])
