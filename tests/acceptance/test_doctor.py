"""`lakepact doctor` finds what is wrong, says what to do, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import shlex
import socket
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

import lakepact
from lakepact.cli import app, checkup
from lakepact.cli.checkup import readers, shared
from lakepact.cli.finding import Verdict
from lakepact.cli.services import connection_limit
from lakepact.client.errors import Unavailable
from lakepact.kernel.identity import uuid7
from lakepact.kernel.keys import key_of
from lakepact.kernel.model import Transaction, Write
from lakepact.runtime import SystemClock
from lakepact.settings import Place, Settings
from lakepact.stores import open_blobs, open_store
from tests.support import s3_guarded
from tests.support.issuer import running_issuer
from tests.support.postgres import LazyPostgres
from tests.support.s3_guarded import ROLE, Guard
from tests.support.s3_strict import S3Server
from tests.support.server import running_server
from tests.support.somebody import folder_for_all, somebody
from tests.support.stores import BUCKET, s3_place
from tests.support.waiting import wait_until


@pytest.fixture(autouse=True)
def an_empty_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [*Settings.model_fields, "config"]:
        monkeypatch.delenv(f"LAKEPACT_{name.upper()}", raising=False)
    monkeypatch.setenv("LAKEPACT_PORT", "0")


@pytest.fixture(scope="module")
def guard() -> Iterator[Guard]:
    with s3_guarded.running() as running:
        yield running


@pytest.fixture(scope="module")
def postgres() -> Iterator[LazyPostgres]:
    with ExitStack() as stack:
        yield LazyPostgres(stack)


def findings(code: int, *arguments: str) -> dict[str, dict[str, str]]:
    ended = CliRunner().invoke(app, ["doctor", "--json", *arguments])
    assert ended.exit_code == code, ended.output
    document = json.loads(ended.stdout)
    assert document["well"] is (code == 0)
    found: dict[str, dict[str, str]] = {one["subject"]: one for one in document["findings"]}
    assert all(one["do"] for one in found.values() if one["verdict"] != "ok")
    return found


def make_a_store() -> None:
    made = CliRunner().invoke(app, ["tokens", "create", "ann"])
    assert made.exit_code == 0, made.output


def test_a_machine_with_a_store_is_well(tmp_path: Path) -> None:
    make_a_store()
    (tmp_path / "lakepact-data" / "warehouse").mkdir()
    found = findings(0)
    for subject in (
        "settings",
        "store",
        "store: commit",
        "warehouse main",
        "clock: warehouse main",
        "port",
        "disk: store",
    ):
        assert found[subject]["verdict"] == "ok", found[subject]
    assert found["java"]["verdict"] == found["spark"]["verdict"] == found["spark: jars"]["verdict"] == "ok"
    assert not list((tmp_path / "lakepact-data" / "warehouse").rglob("doctor/*"))
    shown = CliRunner().invoke(app, ["doctor"])
    assert shown.exit_code == 0 and "overwrites nothing" in shown.stdout
    assert findings(0, "--read-only")["warehouse main"]["verdict"] == "ok"


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_a_store_that_everybody_may_read_is_found(kind: str) -> None:
    # Not in the folder of this test: nobody else can reach that.
    with tempfile.TemporaryDirectory(prefix="lakepact-doctor-") as name:
        path = Path(name) / "cells"
        path.parent.chmod(0o755)
        settings = Settings.load(store=f"{kind}:///{path}" if kind == "sqlite" else path.as_uri())

        async def made() -> None:
            await (await open_store(settings.store, settings.kernel())).close()

        assert list(readers(settings)) == []
        asyncio.run(made())
        assert list(readers(settings)) == []
        path.chmod(0o755)
        [found] = readers(settings)
        assert f"chmod {'600' if kind == 'sqlite' else '700'} {path}" in found.do
        path.parent.chmod(0o700)
        assert list(readers(settings)) == []


@pytest.mark.parametrize("options", [[], ["--read-only"]])
def test_where_there_is_no_store_it_says_so_and_makes_none(tmp_path: Path, options: list[str]) -> None:
    found = findings(0, *options)
    assert found["store"]["verdict"] == found["warehouse main"]["verdict"] == "warn"
    assert f"there is no store at {tmp_path}/lakepact-data/lakepact.db" in found["store"]["detail"]
    assert "where it runs" in found["store"]["do"]
    assert "store: commit" not in found
    assert list(tmp_path.iterdir()) == []


def test_where_no_store_can_be_made_a_server_cannot_work(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    found = findings(1, "--store", f"sqlite:////{str(tmp_path).lstrip('/')}/taken/lakepact.db")
    assert found["store"]["verdict"] == "fail"


def test_a_probe_makes_no_store(tmp_path: Path) -> None:
    ended = CliRunner().invoke(app, ["store", "probe", "sqlite:///nope.db"])
    assert ended.exit_code == 2, ended.output
    assert f"there is no store at {tmp_path}/nope.db. Correct the URL" in ended.output.replace("\n", "")
    assert "--store" not in ended.output
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_is_no_store_and_stays_one(tmp_path: Path) -> None:
    (tmp_path / "lakepact-data").mkdir()
    file = tmp_path / "lakepact-data" / "lakepact.db"
    file.touch()
    found = findings(0)
    assert found["store"]["verdict"] == "warn"
    assert "an empty file" in found["store"]["detail"]
    ended = CliRunner().invoke(app, ["tokens", "list"])
    assert (ended.exit_code, "there is no store at" in ended.output) == (2, True)
    assert file.stat().st_size == 0
    make_a_store()
    assert findings(0)["store"]["verdict"] == "ok"


def test_a_damaged_store_is_to_be_restored_and_not_to_be_made_writable(tmp_path: Path) -> None:
    (tmp_path / "lakepact-data").mkdir()
    (tmp_path / "lakepact-data" / "lakepact.db").write_text("no database, but a text that somebody has put here")
    found = findings(1)["store"]
    assert "damaged or no SQLite database" in found["detail"]
    assert "restore a backup" in found["do"] and "may write" not in found["do"]


@pytest.mark.parametrize(
    ("folder_mode", "file_mode", "says"),
    [
        (0o500, 0o600, "may not write to the folder"),
        (0o777, 0o000, "may not read and write"),
    ],
)
def test_a_store_of_somebody_else_is_refused_with_who_may_not(
    folder_mode: int, file_mode: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with folder_for_all() as folder:
        monkeypatch.chdir(folder)
        make_a_store()
        (folder / "lakepact-data" / "warehouse").mkdir()
        CliRunner().invoke(app, ["doctor"])
        (folder / "lakepact-data" / "lakepact.db").chmod(file_mode)
        (folder / "lakepact-data").chmod(folder_mode)
        with somebody():
            ended = CliRunner().invoke(app, ["tokens", "list"])
            found = findings(1)["store"]
    assert ended.exit_code == 2, ended.output
    assert ended.stderr.startswith("error: store-unsuitable: ")
    assert says in ended.stderr and "Run this as the user who runs the server" in ended.stderr
    assert says in found["detail"]


def test_a_store_that_nobody_lets_us_make_is_refused_with_who_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with folder_for_all() as folder:
        monkeypatch.chdir(folder)
        folder.chmod(0o555)
        with somebody():
            ended = CliRunner().invoke(app, ["tokens", "create", "ann"])
    assert ended.exit_code == 2, ended.output
    assert f"may not write to the folder {folder}" in ended.stderr


def test_a_store_beside_another_warehouse_than_its_own_is_found(tmp_path: Path) -> None:
    async def made() -> None:
        store = await open_store(f"sqlite:///{tmp_path}/a/lakepact.db")
        pointer = {"namespace": ["db"], "name": "t", "metadata-location": f"file://{tmp_path}/a/warehouse/t/m.json"}
        written = Write(key_of("main", "tables", "1"), 0, pointer)
        await store.commit(Transaction(uuid7(SystemClock().now_ms(), 1), "", (written,), answer={}))
        await store.close()

    asyncio.run(made())
    found = findings(1, "--store", f"sqlite:///{tmp_path}/a/lakepact.db")
    assert found["tables of main"]["verdict"] == "fail"


def test_a_server_whose_folder_was_moved_says_so_when_it_begins_and_when_a_table_is_asked_for(tmp_path: Path) -> None:
    with running_server(tmp_path / "before") as server, lakepact.connect(server.url) as lake:
        lake.namespaces.create("sales")
        schema = {"type": "struct", "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}
        lake.tables.create("sales.orders", schema)
    (tmp_path / "before" / "data").rename(tmp_path / "moved")
    with running_server(tmp_path / "after", "--data", str(tmp_path / "moved")) as server:
        server.log_end()
        [line] = [one for one in server.lines() if "lies outside of its warehouse" in one.get("event", "")]
        assert (line["warehouse"], line["level"]) == ("main", "error") and "before/data" in line["table"]
        with lakepact.connect(server.url) as lake, pytest.raises(Unavailable, match="Set them as they were"):
            lake.tables.load("sales.orders")


def test_tables_without_readable_metadata_are_listed_with_the_command_that_repairs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = {"type": "struct", "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}
    options = ("--store", f"sqlite:////{str(tmp_path).lstrip('/')}/data/lakepact.db", "--read-only")
    settings = {"LAKEPACT_WAREHOUSE": f"file://{tmp_path}/data/warehouse"}
    with (
        running_server(tmp_path) as server,
        lakepact.connect(server.url) as lake,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in settings.items():
            patch.setenv(name, value)
        lake.namespaces.create("db")
        locations = {
            name: lake.tables.create(f"db.{name}", schema).metadata_location
            for name in ("whole", "missing", "damaged", "changed", *(f"t{number:02}" for number in range(20)))
        }
        before = findings(0, *options)
        assert "24 tables and views were read" in before["metadata of main"]["detail"]
        assert before["metadata of main"]["verdict"] == "ok"
        update = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "b"}}]}
        path = "/v1/main/namespaces/db/tables/changed"
        headers = {"Content-Type": "application/json"}
        with urllib.request.urlopen(
            urllib.request.Request(f"{server.url}{path}", orjson.dumps(update), headers)
        ) as sent:
            changed = orjson.loads(sent.read())["metadata-location"]
        for name in ("missing", "changed"):
            location = changed if name == "changed" else locations[name]
            Path(location.removeprefix("file://")).unlink()
        Path(locations["damaged"].removeprefix("file://")).write_text("{")

        found = findings(0, *options)
        assert "24 tables and views were read, 3 of them cannot be loaded" in found["metadata of main"]["detail"]
        listed = {subject: one for subject, one in found.items() if subject.startswith("table main: ")}
        assert set(listed) == {f"table main: db.{name}" for name in ("missing", "damaged", "changed")}
        assert "is not in the warehouse" in listed["table main: db.missing"]["detail"]
        assert "is damaged" in listed["table main: db.damaged"]["detail"]

        # The commands can be typed as they are.
        monkeypatch.setenv("LAKEPACT_URI", server.url)
        for finding in listed.values():
            command = shlex.split(finding["do"].partition(": lakepact ")[2])
            ended = CliRunner().invoke(app, command)
            assert ended.exit_code == 0, (command, ended.output)
        assert findings(0, *options)["metadata of main"]["verdict"] == "ok"
        assert lake.tables.load("db.changed").metadata_location == locations["changed"]
        remaining = {name for namespace, name in lake.tables.list("db")}
        assert "changed" in remaining and not {"missing", "damaged"} & remaining

        for number in range(20):
            Path(locations[f"t{number:02}"].removeprefix("file://")).unlink()
        Path(locations["whole"].removeprefix("file://")).unlink()
        found = findings(0, *options)
        assert "21 of them cannot be loaded" in found["metadata of main"]["detail"]
        assert "The first 20" in found["metadata of main"]["do"]
        assert len([one for one in found if one.startswith("table main: ")]) == 20


def test_a_shared_store_with_the_files_of_one_machine_is_odd() -> None:
    [finding] = shared("postgresql://db/lakepact", "main", Place(url="file:///data/warehouse"))
    assert finding.verdict == "warn"
    assert not list(shared("sqlite:///x.db", "main", Place(url="file:///data/warehouse")))
    assert not list(shared("postgresql://db/lakepact", "main", Place(url="s3://lake/main")))


def test_wrong_settings_are_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEPACT_LEASE_S", "soon")
    assert "lease_s" in findings(1)["settings"]["detail"]


def test_a_store_that_cannot_be_reached_and_a_warehouse_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    monkeypatch.setenv("LAKEPACT_WAREHOUSE", f"file://{tmp_path}/taken/warehouse")
    found = findings(1, "--store", "postgresql://nobody@127.0.0.1:1/nothing")
    assert found["store"]["verdict"] == "fail" and found["warehouse main"]["verdict"] == "fail"


def test_a_warehouse_that_overwrites_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with S3Server(buckets=(BUCKET,)).running() as server:
        place = s3_place("s3-strict", server.url, server)
        monkeypatch.setenv("LAKEPACT_WAREHOUSE", place.url)
        monkeypatch.setenv("LAKEPACT_WAREHOUSE_OPTIONS", orjson.dumps(place.options).decode())
        assert findings(0)["warehouse main"]["verdict"] == "ok"
        server.ignored_conditions.add("if-none-match")
        assert "conditions are ignored" in findings(1)["warehouse main"]["detail"]


def test_a_clock_that_is_far_off_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with S3Server(buckets=(BUCKET,)).running() as server:
        place = s3_place("s3-strict", server.url, server)
        monkeypatch.setenv("LAKEPACT_WAREHOUSE", place.url)
        monkeypatch.setenv("LAKEPACT_WAREHOUSE_OPTIONS", orjson.dumps(place.options).decode())
        told = server._contents
        for off_s, verdict in ((0, "ok"), (60, "warn"), (-3_600, "fail")):

            def contents(name: str, stored: Any, off_s: int = off_s) -> str:
                moved = type(stored)(
                    stored.data, stored.e_tag, stored.generation, stored.modified_s + off_s, stored.headers
                )
                return told(name, moved)

            monkeypatch.setattr(server, "_contents", contents)
            assert findings(int(verdict == "fail"))["clock: warehouse main"]["verdict"] == verdict


def test_a_slow_write_is_no_difference_of_the_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    class SlowClock(SystemClock):
        """A minute passes between the beginning of the write and its end: the second and the third reading."""

        readings = 0

        def now_ms(self) -> int:
            self.readings += 1
            return super().now_ms() - (60_000 if self.readings <= 2 else 0)

    async def verdicts() -> dict[str, Verdict]:
        blobs = await open_blobs("memory://")
        try:
            return {one.subject: one.verdict async for one in checkup._tried_out("warehouse", "here", blobs)}
        finally:
            await blobs.close()

    monkeypatch.setattr(checkup, "_clock", SlowClock())
    assert asyncio.run(verdicts())["clock: warehouse"] is Verdict.OK


@contextmanager
def somebody_listening() -> Iterator[int]:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        yield bound.getsockname()[1]


def test_a_port_in_use_is_found_unless_it_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with somebody_listening() as port:
        monkeypatch.setenv("LAKEPACT_PORT", str(port))
        assert "--port" in findings(1)["port"]["do"]
    with running_server(tmp_path / "server") as server:
        monkeypatch.setenv("LAKEPACT_PORT", server.url.rpartition(":")[2])

        def is_recognised() -> bool:
            """Return whether the server has answered within the few seconds that doctor waits for it."""
            ended = CliRunner().invoke(app, ["doctor", "--json"])
            found = {one["subject"]: one for one in json.loads(ended.stdout)["findings"]}
            return ended.exit_code == 0 and "a Lakepact server" in found["port"]["detail"]

        wait_until(is_recognised, "the server is not recognised")


def test_credentials_for_clients_are_tried(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"role_arn": ROLE, "sts_endpoint": guard.url}
    monkeypatch.setenv("LAKEPACT_WAREHOUSE", f"s3://{guard.bucket}/doctor")
    monkeypatch.setenv("LAKEPACT_WAREHOUSE_OPTIONS", orjson.dumps(guard.options()).decode())
    monkeypatch.setenv("LAKEPACT_WAREHOUSE_CREDENTIALS", orjson.dumps(given).decode())
    assert "was made" in findings(0)["credentials main"]["detail"]
    guard.sts_status = 403
    try:
        found = findings(1)["credentials main"]
    finally:
        guard.sts_status = 200
    assert "AccessDenied" in found["detail"] and "storage-credentials.md" in found["do"]


def test_the_wrong_java_and_no_java_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert findings(0)["java"]["verdict"] == "warn"
    java = home / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    assert "11.0.2" in findings(0)["java"]["detail"]


def test_a_connector_for_another_spark_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "spark" / "jars" / "iceberg-spark-runtime-3.5_2.12-1.7.0.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    assert "Spark 3.5" in findings(1)["spark: jars"]["detail"]


# --- services ---


def with_oidc(monkeypatch: pytest.MonkeyPatch, issuer: str) -> None:
    monkeypatch.setenv("LAKEPACT_AUTH", "oidc")
    monkeypatch.setenv("LAKEPACT_OIDC_ISSUER", issuer)
    monkeypatch.setenv("LAKEPACT_OIDC_AUDIENCE", "lakepact")


def test_an_identity_provider_that_answers_with_keys_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    make_a_store()
    with running_issuer() as issuer:
        with_oidc(monkeypatch, issuer.url)
        assert findings(0)["identity provider"]["detail"] == f"{issuer.url} answers, with 3 keys"
        issuer.published = []
        assert findings(1)["identity provider"]["verdict"] == "fail"
        issuer.down = True
        found = findings(1)["identity provider"]
        assert issuer.url in found["detail"] and "oidc_issuer" in found["do"]
    assert "identity provider" not in findings_without_oidc(monkeypatch)


def findings_without_oidc(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, str]]:
    monkeypatch.setenv("LAKEPACT_AUTH", "none")
    return findings(0)


@pytest.mark.parametrize(
    ("workers", "connections", "most", "verdict", "advised"),
    [(1, 16, 100, "ok", ""), (4, 8, 100, "ok", ""), (4, 16, 100, "warn", "?connections=12"), (200, 1, 100, "fail", "")],
)
def test_connections_of_two_servers_must_fit_into_what_postgres_allows(
    workers: int, connections: int, most: int, verdict: str, advised: str
) -> None:
    found = connection_limit(workers, connections, most, 3)
    assert (found.verdict, advised in found.do) == (verdict, True)
    assert f"= {workers * connections} for each server" in found.detail


def test_the_settings_in_the_guide_to_production_fit_the_default_of_postgres(root: Path) -> None:
    page = (root / "docs" / "production.md").read_text()
    [connections] = {int(found) for found in re.findall(r"^store = .*[?&]connections=(\d+)", page, re.MULTILINE)}
    [workers] = {int(found) for found in re.findall(r"^workers = (\d+)$", page, re.MULTILINE)}
    assert connection_limit(workers, connections, most=100, reserved=3).verdict == "ok"


def test_the_connections_that_postgres_allows_are_compared(postgres: LazyPostgres) -> None:
    url = postgres.url() + "&connections=4"
    found = findings(0, "--store", url)
    assert found["store: connections"]["verdict"] == found["clock: store"]["verdict"] == "ok"
    assert "1 workers x 4 connections = 4 for each server" in found["store: connections"]["detail"]


def test_where_there_is_no_pyspark_neither_java_nor_spark_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    make_a_store()
    found_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyspark" else found_spec(name))
    found = findings(0)
    assert not {"java", "spark", "spark: jars"} & found.keys()
