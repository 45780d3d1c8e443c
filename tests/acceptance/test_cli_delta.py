"""`lakepact delta` against a real server: text for people, JSON for programs, exit codes that say what was found."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import lakepact
from lakepact.cli import app
from lakepact.client import Lake
from lakepact.delta import MultiTableTransaction, StagedTable, TransactionConfig
from lakepact.delta.actions import Add
from tests.support.server import running_server
from tests.support.waiting import PATIENCE_S, wait_until

deltalake = pytest.importorskip("deltalake")
pa = pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    folder: Path = tmp_path_factory.mktemp("server")
    with running_server(folder) as server, lakepact.connect(server.url) as lake, pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAKEPACT_URI", server.url)
        patch.setenv("LAKEPACT_DATA", str(folder / "data"))
        lake.namespaces.create("ml")
        yield lake


@pytest.fixture
def source(lake: Lake, request: pytest.FixtureRequest) -> Path:
    """A table in the warehouse that the catalog does not know: two versions, partitioned."""
    made = lake.delta.create(f"ml.place_of_{request.node.name}", SCHEMA)
    folder = Path(made.location.removeprefix("file://")).parent / f"source_{request.node.name}"
    folder.mkdir(parents=True)
    for ids in ([1, 2], [3]):
        table = pa.table({"id": pa.array(ids, pa.int64()), "day": ["monday"] * len(ids)})
        deltalake.write_deltalake(str(folder), table, mode="append", partition_by=["day"])
    return folder


SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["delta", *arguments])
    assert result.exit_code == code, result.output
    return result.output


def run_json(*arguments: str, code: int = 0) -> Any:
    return json.loads(run(*arguments, "--json", code=code))


def test_whoever_looks_for_it_among_the_others_is_told_where_it_is(lake: Lake) -> None:
    lake.delta.create("ml.elsewhere", SCHEMA)
    asked_and_told = [
        (["tables", "show"], "delta show"),
        (["tables", "drop"], "delta drop"),
        (["history"], "delta history"),
    ]
    for asked, told in asked_and_told:
        result = CliRunner().invoke(app, [*asked, "ml.elsewhere"])
        assert result.exit_code == 2
        assert f"ml.elsewhere is a Delta table: lakepact {told} ml.elsewhere" in result.output.replace("\n", " ")
    assert CliRunner().invoke(app, ["tables", "show", "ml.nowhere"]).exit_code == 2
    listed = CliRunner().invoke(app, ["tables", "list", "ml"])
    assert "Delta tables: lakepact delta list ml" in listed.output


def test_an_iceberg_table_is_not_looked_for_in_vain_either(lake: Lake) -> None:
    lake.tables.create("ml.orders", {"type": "struct", "schema-id": 0, "fields": []})
    for asked, told in (("show", "tables show"), ("history", "history"), ("drop", "tables drop")):
        assert f"ml.orders is an Iceberg table: lakepact {told} ml.orders" in run(asked, "ml.orders", code=2)


def test_a_table_is_looked_at_renamed_and_dropped(lake: Lake) -> None:
    lake.delta.create("ml.labels", SCHEMA)
    assert "ml.labels" in run("list", "ml")
    assert ["ml", "labels"] in run_json("list", "ml")
    shown = run("show", "ml.labels")
    assert "x-lakepact-managed" in shown
    assert "long" in shown
    assert run_json("show", "ml.labels", "--version", "0", "--files")["files"] == []
    assert "CREATE TABLE" in run("history", "ml.labels")
    assert [one["version"] for one in run_json("history", "ml.labels", "--limit", "1")] == [0]
    assert "Renamed ml.labels to ml.old" in run("rename", "ml.labels", "ml.old")
    assert run_json("drop", "ml.old") == {"table": ["ml", "old"], "dropped": True}
    run("show", "ml.old", code=2)


def test_a_table_is_imported_verified_and_taken_over(lake: Lake, source: Path) -> None:
    would = run("import", f"file://{source}", "ml.found", "--dry-run")
    assert "Would import ml.found up to version 1: 2 versions; 2 live files, 3 rows" in would
    run("verify", "ml.found", code=2)
    done = run("import", str(source), "ml.found")
    assert "Imported ml.found up to version 1" in done
    assert "read-only" in done
    assert "Table and log are equal from version 0 to 1." in done
    assert "day=monday" in run("show", "ml.found", "--files")
    assert "Table and log are equal" in run("verify", "ml.found")
    assert run_json("import", str(source), "ml.found", "--take-over")["read-only"] is False
    assert run_json("verify", "ml.found")["equal"] is True


def test_foreign_writers_are_refused_once_the_mirror_has_written_the_take_over(lake: Lake, source: Path) -> None:
    run("import", str(source), "ml.guarded", "--take-over")
    mirrored = CliRunner().invoke(app, ["mirror", "run", "--once"])
    assert mirrored.exit_code == 0, mirrored.output
    table = deltalake.DeltaTable(str(source))
    until = time.monotonic() + PATIENCE_S
    while table.version() < 2 and time.monotonic() < until:
        # The server mirrors too: what it was at just now is its own to finish.
        time.sleep(0.1)
        table.update_incremental()
    assert (table.version(), sorted(table.to_pyarrow_table()["id"].to_pylist())) == (2, [1, 2, 3])
    with pytest.raises(Exception, match=r"x-lakepact-managed|[Ff]eature"):
        deltalake.write_deltalake(str(source), pa.table({"id": [4], "day": ["monday"]}), mode="append")

    def compared() -> tuple[Any, ...]:
        found = run_json("verify", "ml.guarded")
        return found["equal"], found["version"], found["log-version"], found["behind"]

    # The file comes first, and the note that it is written after it.
    wait_until(lambda: compared() == (True, 2, 2, 0), lambda: str(compared()))


def test_a_difference_is_told_and_ends_with_one(lake: Lake, source: Path) -> None:
    run("import", str(source), "ml.forged")
    path = source / "_delta_log" / f"{1:020}.json"
    path.write_text(path.read_text().replace('"numRecords\\":1', '"numRecords\\":9'))
    told = run("verify", "ml.forged", code=1)
    assert "different: version 1: add" in told
    assert "stats is" in told
    assert run_json("verify", "ml.forged", code=1)["equal"] is False


def test_what_is_not_there_is_a_problem_of_a_dry_run_and_an_error_of_an_import(lake: Lake, source: Path) -> None:
    assert "not a Delta log" in run("import", f"{source}-not", "ml.nothing", "--dry-run", code=1)
    run("import", f"{source}-not", "ml.nothing", code=2)


def test_the_way_back_after_a_restore_is_the_command_that_the_backup_prints(tmp_path: Path) -> None:
    def main(*arguments: str) -> str:
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        return result.output

    old, new = (f"sqlite:////{str(tmp_path).lstrip('/')}/{name}.db" for name in ("old", "new"))
    backup, warehouse = str(tmp_path / "backup.gz"), f"file://{tmp_path}/warehouse"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAKEPACT_WAREHOUSE", warehouse)
        with running_server(tmp_path / "before", "--store", old) as server, lakepact.connect(server.url) as before:
            before.namespaces.create("ml")
            made = before.delta.create("ml.labels", SCHEMA)
            before.delta.writer().commit(one_file(made.table_id))
            main("mirror", "run", "--once", "--store", old)
            # The server mirrors too: what it was at just now is its own to finish.
            log = Path(made.location.removeprefix("file://")) / "_delta_log"
            wait_until((log / f"{1:020}.json").exists, "the commit is not mirrored")
            told = json.loads(main("backup", f"{backup}.too", "--without-delta", "--store", old, "--json"))
            assert [one["table"] for one in told["left_out"]] == ["ml.labels"]
            said = [
                main("backup", backup, "--without-delta", "--store", old),
                main("restore", backup, "--check", "--store", new),
            ]
        said.append(main("restore", backup, "--store", new))
        [command] = {line.strip() for text in said for line in text.splitlines() if "delta import" in line}
        with running_server(tmp_path / "after", "--store", new) as server, lakepact.connect(server.url) as after:
            patch.setenv("LAKEPACT_URI", server.url)
            assert "It is ours" in main(*shlex.split(command)[1:])
            table = after.delta.load("ml.labels")
            assert (table.location, table.version) == (made.location, 2)
            assert [file.path for file in table.files] == ["0.parquet"]


def one_file(table_id: str) -> MultiTableTransaction:
    transaction = MultiTableTransaction(TransactionConfig())
    transaction.stage_table(table_id, StagedTable(table_id, [Add("0.parquet", {}, 1, 1)], 0))
    return transaction
