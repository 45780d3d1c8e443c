"""Logs of ours read by delta-spark, which cannot write them; logs of delta-spark read by us as it reads them."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lakepact.delta import schema as schemas
from lakepact.delta.actions import Txn
from lakepact.delta.errors import UnsupportedFeature
from lakepact.delta.log_reader import Base, read_log, read_state
from lakepact.delta.paths import decode_path
from lakepact.delta.protocol import is_managed
from lakepact.delta.state import Replay, TableState
from lakepact.delta.stats import num_records
from tests.interop.delta_log_tables import LATER_MS, START_MS, OurTable, a_delta_rs_table, listed, our_table, taken_over
from tests.wire.world import Wire

# It starts Spark, and the first of all fetches Delta.

ROOT = Path(__file__).parents[2]
TABLES = "/namespaces/db/delta-tables"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables, after Spark has been there."""
    made = tmp_path_factory.mktemp("delta")
    our_table(made / "ours")
    taken_over(a_delta_rs_table(made / "taken"))
    command = [sys.executable, "-m", "tests.interop.delta_log_spark", str(made)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1_000)
    assert done.returncode == 0, done.stderr[-6000:]
    return made


@pytest.fixture(scope="module")
def said(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "said.json").read_text())
    return found


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> OurTable:
    """The same table once more, to know what is in it."""
    return our_table(tmp_path_factory.mktemp("again") / "ours")


def test_spark_reads_our_log(said: dict[str, Any], ours: OurTable) -> None:
    rows = sorted(said["ours"]["rows"], key=lambda row: row["id"])
    expected = ours.live_rows()
    assert [row["id"] for row in rows] == [row["id"] for row in expected]
    for row, wanted in zip(rows, expected, strict=True):
        # Spark leaves nulls out of its JSON.
        for name in ("text", "flag", "p", "later", "point", "small", "counts"):
            assert row.get(name) == wanted[name], name
        assert row["day"] == wanted["day"].isoformat()
        assert dt.datetime.fromisoformat(row["at"]) == wanted["at"].replace(
            microsecond=wanted["at"].microsecond // 1000 * 1000
        )
        assert float(row["amount"]) == float(wanted["amount"])
    assert said["ours"]["by_at"] and set(said["ours"]["by_at"]) == {1}
    assert said["ours"]["greater"] == [row["id"] for row in expected if row["id"] % 4 == 3]


def test_spark_travels_in_our_time(said: dict[str, Any]) -> None:
    assert said["ours"]["at_version"] == {"0": 0, "9": 14, "12": 18}
    assert said["ours"]["history"] == [[version, (START_MS + version) / 1000] for version in range(12, -1, -1)]


def test_spark_is_refused_when_it_writes(said: dict[str, Any], folder: Path) -> None:
    for what, outcome in said["ours"]["writes"].items():
        assert "x-lakepact-managed" in outcome, (what, outcome[:500])
    assert len(list((folder / "ours" / "_delta_log").glob("*.json"))) == 13


def states(table: Path) -> list[TableState]:
    log = table / "_delta_log"
    found: list[TableState] = []
    folded = Replay()
    for step in read_log(listed(log), lambda name: (log / name).read_bytes()):
        if isinstance(step, Base):
            folded = Replay(step.state)
        else:
            folded.apply(step.number, step.actions)
        found.append(folded.state())
    return found


def same(state: TableState, wanted: dict[str, Any], table: Path) -> None:
    assert sorted(f"{table}/{decode_path(path)}" for path, _ in state.files) == [
        uri.removeprefix("file:").replace("///", "/") for uri in wanted["files"]
    ]
    assert schemas.parse(state.metadata.schema_string) == schemas.parse(wanted["schema"])
    if "rows" in wanted:
        assert sum(num_records(add.stats) or 0 for add in state.files.values()) == wanted["rows"]


@pytest.mark.parametrize(("name", "oldest"), [("plain", 0), ("parts", 3), ("sidecars", 3)])
def test_a_log_of_spark_is_read_as_spark_reads_it(said: dict[str, Any], folder: Path, name: str, oldest: int) -> None:
    found = states(folder / name)
    assert [str(state.version) for state in found] == list(said[name])
    assert found[0].version == oldest
    for state in found:
        same(state, said[name][str(state.version)], folder / name)


def test_checkpoints_of_every_form_were_there(folder: Path) -> None:
    assert list((folder / "parts" / "_delta_log").glob("*.checkpoint.0000000001.*.parquet"))
    assert list((folder / "sidecars" / "_delta_log" / "_sidecars").glob("*.parquet"))
    assert list((folder / "plain" / "_delta_log").glob("*6.checkpoint.parquet"))


def test_an_applications_progress_and_partition_values_are_read(folder: Path) -> None:
    state = states(folder / "plain")[-1]
    assert state.transactions["loader"] == Txn("loader", 7, state.transactions["loader"].last_updated)
    values = {tuple(add.partition_values.values()) for add in state.files.values()}
    assert {value for pair in values for value in pair} >= {"a:b c/é=%", None, "x", "y"}


def test_deletion_vectors_are_refused_by_name_and_left_behind_by_a_later_checkpoint(
    said: dict[str, Any], folder: Path
) -> None:
    log = folder / "vectors" / "_delta_log"
    with pytest.raises(UnsupportedFeature, match=r"json: .*has a deletion vector"):
        states(folder / "vectors")
    state = read_state(listed(log), lambda name: (log / name).read_bytes(), 3)
    same(state, said["vectors"]["3"], folder / "vectors")


def test_column_mapping_is_refused_by_name(folder: Path) -> None:
    with pytest.raises(UnsupportedFeature, match="'columnMapping' is used"):
        states(folder / "mapped")


@pytest.mark.parametrize("name", ["plain", "parts", "sidecars"])
def test_a_log_of_spark_is_imported_and_verified(said: dict[str, Any], folder: Path, tmp_path: Path, name: str) -> None:
    """Partitions, removes, an evolved schema, checkpoints of every form: through the server, as a user would."""
    warehouse = tmp_path / "warehouse"
    shutil.copytree(folder / name, warehouse / name)

    async def claim() -> None:
        async with Wire.opened(tmp_path, warehouse=warehouse.as_uri()) as wire:
            await wire.namespace("db")
            table = f"{TABLES}/{name}"

            async def imported(**options: bool) -> dict[str, Any]:
                answer = await wire.post(f"{table}/import", {"location": f"{warehouse.as_uri()}/{name}", **options})
                assert answer.status == 200, answer.body
                found: dict[str, Any] = answer.json()
                assert found["parity"]["equal"] is True, found["parity"]
                return found

            done = await imported()
            newest = max(map(int, said[name]))
            assert (done["version"], done["first-version"], done["read-only"]) == (
                newest,
                min(map(int, said[name])),
                True,
            )
            assert done["rows"] == said[name][str(newest)]["rows"]
            for version, wanted in said[name].items():
                loaded = (await wire.get(f"{table}?files=true&version={version}")).json()
                found = sorted(f"{folder / name}/{decode_path(one['add']['path'])}" for one in loaded["files"])
                assert found == [uri.removeprefix("file:").replace("///", "/") for uri in wanted["files"]]
                assert schemas.parse(loaded["metadata"]["schemaString"]) == schemas.parse(wanted["schema"])
            if name == "plain":
                assert loaded["transactions"] == {"loader": 7}
                assert loaded["metadata"]["partitionColumns"] == ["p", "q"]
            taken = await imported(**{"take-over": True})
            assert (taken["version"], taken["read-only"]) == (newest + 1, False)
            compared = (await wire.get(f"{table}/verify")).json()
            assert (compared["equal"], compared["version"]) == (True, newest + 1), compared

    asyncio.run(claim())


@pytest.mark.parametrize(("name", "why"), [("vectors", "deletion vector"), ("mapped", "columnMapping")])
def test_what_spark_can_and_we_cannot_is_refused_by_the_import(
    folder: Path, tmp_path: Path, name: str, why: str
) -> None:
    warehouse = tmp_path / "warehouse"
    shutil.copytree(folder / name, warehouse / name)

    async def claim() -> None:
        async with Wire.opened(tmp_path, warehouse=warehouse.as_uri()) as wire:
            await wire.namespace("db")
            answer = await wire.post(f"{TABLES}/t/import", {"location": f"{warehouse.as_uri()}/{name}"})
            assert (answer.status, why in answer.json()["error"]["message"]) == (400, True), answer.body
            assert (await wire.get(TABLES)).json()["identifiers"] == []

    asyncio.run(claim())


def test_a_table_that_was_taken_over_is_read_with_its_history_and_not_written(
    said: dict[str, Any], folder: Path
) -> None:
    state = states(folder / "taken")[-1]
    assert said["taken"]["history"][0] == [state.version, LATER_MS / 1000]
    assert [version for version, _ in said["taken"]["history"]] == list(range(state.version, -1, -1))
    same(state, said["taken"]["states"][str(state.version)], folder / "taken")
    assert "x-lakepact-managed" in said["taken"]["delete"]


def test_a_table_of_spark_can_be_taken_over(folder: Path) -> None:
    before = states(folder / "plain")[-1]
    assert taken_over(folder / "plain") == before.version + 1
    after = states(folder / "plain")[-1]
    assert is_managed(after.protocol) and after.files == before.files
