"""The Python client and the commands over it, against a real server: what a program sees, and what others see of it."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from typer.testing import CliRunner

import lakepact
from lakepact.cli import app
from lakepact.client import (
    AlreadyExists,
    Conflict,
    Lake,
    NotEmpty,
    NotFound,
    Retry,
    TableChange,
    Transaction,
    TransactionClosed,
    Unavailable,
)
from tests.support.server import running_server
from tests.support.tcp_proxy import CuttingProxy
from tests.support.waiting import PATIENCE_S, wait_until

ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})
SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_server(tmp_path_factory.mktemp("server")) as server:
        yield server.url


@pytest.fixture(scope="module")
def lake(uri: str) -> Iterator[Lake]:
    with lakepact.connect(uri) as connected:
        yield connected


@pytest.fixture
def space(lake: Lake, request: pytest.FixtureRequest) -> str:
    """A namespace of its own with two empty tables, a and b."""
    name = re.sub(r"\W", "_", request.node.name)[:60]
    make_tables(lake, name)
    return name


def make_tables(lake: Lake, name: str) -> None:
    lake.namespaces.create(name)
    for table in "ab":
        lake.tables.create((name, table), SCHEMA)


def rows(lake: Lake, space: str) -> list[int]:
    """How many rows the two tables have, in one cut."""
    cut = lake.read_at([(space, "a"), (space, "b")])
    return [cut[space, table].pyiceberg().scan().to_arrow().num_rows for table in "ab"]


def append(tx: Transaction, space: str, tables: str = "ab") -> None:
    for table in tables:
        tx.pyiceberg().load_table((space, table)).append(ROWS)


def setting(space: str, table: str, number: int) -> TableChange:
    return TableChange((space, table), [], [{"action": "set-properties", "updates": {"n": str(number)}}])


# --- transactions ---


def test_pyiceberg_inside_sees_what_is_staged_and_nobody_else_does_until_the_commit(lake: Lake, space: str) -> None:
    outside = lake.pyiceberg()
    with lake.transaction() as tx:
        append(tx, space)
        tx.pyiceberg().create_table((space, "c"), ROWS.schema).append(ROWS)
        assert tx.pyiceberg().load_table((space, "a")).scan().to_arrow().num_rows == 2
        assert sorted(tx.tables.list(space)) == [(space, "a"), (space, "b"), (space, "c")]
        assert rows(lake, space) == [0, 0]
        with pytest.raises(NoSuchTableError):
            outside.load_table((space, "c"))
    assert rows(lake, space) == [2, 2]
    assert outside.load_table((space, "c")).scan().to_arrow().num_rows == 2
    assert {one.identifier[-1] for one in tx.results} == {"a", "b", "c"}
    assert lake.transactions.get(tx.id).results == tx.results


def test_pyiceberg_refuses_properties_that_would_send_changes_elsewhere(lake: Lake, space: str) -> None:
    with lake.transaction() as tx:
        for catalog, name, value in (
            (lake, "warehouse", tx.warehouse),
            (lake, "prefix", tx.prefix),
            (lake, "uri", tx.base_uri),
            (tx, "warehouse", lake.warehouse),
        ):
            with pytest.raises(ValueError, match=rf"{name}=.* cannot be set here.*tx\.pyiceberg\(\)"):
                catalog.pyiceberg(**{name: value})
        # The same value is no contradiction.
        assert lake.pyiceberg(warehouse=lake.warehouse).namespace_exists(space)
        tx.pyiceberg(warehouse=tx.warehouse).load_table((space, "a")).append(ROWS)
        assert rows(lake, space) == [0, 0]
    assert rows(lake, space) == [2, 0]


def test_pyiceberg_at_the_base_uri_works_inside_the_transaction(lake: Lake, space: str) -> None:
    with lake.transaction() as tx:
        assert tx.base_uri == f"{lake.uri}/in/{tx.warehouse}"
        inside = load_catalog("inside", type="rest", uri=tx.base_uri, warehouse=lake.warehouse)
        inside.load_table((space, "a")).append(ROWS)
        inside.drop_table((space, "b"))
        assert rows(lake, space) == [0, 0]
        with pytest.raises(ValueError, match="inside a transaction"):
            lakepact.connect(tx.base_uri)
    assert list(lake.tables.list(space)) == [(space, "a")]
    assert lake.pyiceberg().load_table((space, "a")).scan().to_arrow().num_rows == 2


def test_connect_takes_a_token_or_a_credential(lake: Lake) -> None:
    with pytest.raises(ValueError, match="both a token and a credential"):
        lakepact.connect(lake.uri, token="t", credential="a:b")


def test_an_error_in_the_block_leaves_nothing(lake: Lake, space: str) -> None:
    with pytest.raises(ZeroDivisionError), lake.transaction() as tx:
        append(tx, space)
        _ = 1 // 0
    assert rows(lake, space) == [0, 0]
    assert lake.transactions.get(tx.id).state == "aborted"
    with pytest.raises(TransactionClosed) as raised:
        lake.transactions.commit(tx.id)
    assert raised.value.state == "aborted"


def test_a_conflict_names_the_table_and_leaves_nothing(lake: Lake, space: str) -> None:
    with pytest.raises(Conflict) as raised, lake.transaction() as tx:
        append(tx, space)
        lake.pyiceberg().load_table((space, "b")).append(ROWS)
    assert raised.value.tables == ((space, "b"),)
    assert rows(lake, space) == [0, 2]
    assert tx.outcome == "failed"
    assert isinstance(lake.transactions.get(tx.id).error, Conflict)


def test_run_repeats_until_nobody_is_faster(lake: Lake, space: str) -> None:
    tried = []

    def work(tx: Transaction) -> str:
        tried.append(tx.id)
        append(tx, space)
        if len(tried) < 3:
            lake.pyiceberg().load_table((space, "a")).append(ROWS)
        return tx.id

    committed = lake.run(work)
    assert rows(lake, space) == [6, 2]
    assert [lake.transactions.get(id).state for id in tried] == ["failed", "failed", "committed"]
    assert committed == tried[-1]


def test_run_gives_up_with_the_tables_named(lake: Lake, space: str) -> None:
    def work(tx: Transaction) -> None:
        append(tx, space)
        lake.pyiceberg().load_table((space, "a")).append(ROWS)

    with pytest.raises(Conflict) as raised:
        lake.run(work, attempts=2)
    assert raised.value.tables == ((space, "a"),)
    assert rows(lake, space) == [4, 0]


def test_what_only_reads_is_of_one_instant_and_cannot_conflict(lake: Lake, space: str) -> None:
    with lake.transaction(read_only=True) as tx:
        before = tx.read_at([(space, "a")])[space, "a"]
        lake.commit([setting(space, "a", 1), setting(space, "b", 1)])
        assert tx.tables.load((space, "a")).metadata_location == before.metadata_location
        assert "n" not in tx.tables.load((space, "b")).metadata["properties"]
    assert tx.outcome == "committed"


def test_a_block_outlives_its_time_to_live(lake: Lake, space: str) -> None:
    with lake.transaction(ttl=30) as tx:
        append(tx, space)
        first = tx.info.expires_at
        assert first is not None
        wait_until(lambda: (lake.transactions.get(tx.id).expires_at or first) > first, "it is never renewed")
    assert rows(lake, space) == [2, 2]


def test_two_clients_work_in_one_transaction_and_one_of_them_ends_it(lake: Lake, uri: str, space: str) -> None:
    with lake.transaction() as tx:
        append(tx, space, "a")
        with lakepact.connect(uri) as other, other.join(tx.id) as joined:
            assert joined.tables.load((space, "a")).snapshot_id is not None
            append(joined, space, "b")
        assert rows(lake, space) == [0, 0]
    assert rows(lake, space) == [2, 2]


def test_the_same_key_takes_effect_once(lake: Lake, space: str) -> None:
    with lake.transaction() as tx:
        append(tx, space)
    with pytest.raises(TransactionClosed) as raised, lake.transaction(key=tx.id):
        pytest.fail("it has been done")
    assert raised.value.state == "committed"
    assert rows(lake, space) == [2, 2]


def test_documents_move_with_the_tables(lake: Lake, space: str) -> None:
    name = f"{space}/position of a"
    with lake.transaction() as tx:
        assert tx.state.get(name).revision == 0
        append(tx, space)
        assert tx.state.put(name, {"rows": 2}, revision=0) == 1
        assert tx.state[name] == {"rows": 2}
        assert name not in lake.state
        with pytest.raises(Conflict, match="revision"):
            tx.state.put(name, {"rows": 3}, revision=7)
    assert lake.state[name] == {"rows": 2}

    with pytest.raises(Conflict), lake.transaction() as slow:
        assert slow.state[name] == {"rows": 2}
        with lake.transaction() as fast:
            fast.state[name] = {"rows": 4}
        slow.state[name] = {"rows": 5}
    assert lake.state[name] == {"rows": 4}

    with lake.transaction() as tx:
        del tx.state[name]
    assert lake.state.get(name) is None


# --- many tables at once ---


def test_pyiceberg_transactions_of_several_tables_are_committed_at_once(lake: Lake, space: str) -> None:
    catalog = lake.pyiceberg()
    tables: list[Table] = [catalog.load_table((space, table)) for table in "ab"]
    changes = [table.transaction() for table in tables]
    for change in changes:
        change.append(ROWS)
    created = catalog.create_table_transaction((space, "c"), ROWS.schema)
    created.append(ROWS)
    committed = lake.commit([*changes, created])
    assert rows(lake, space) == [2, 2]
    assert catalog.load_table((space, "c")).scan().to_arrow().num_rows == 2
    assert [table.scan().to_arrow().num_rows for table in tables] == [2, 2]
    assert {one.identifier for one in committed.results} == {(space, "a"), (space, "b"), (space, "c")}
    assert committed.transaction_id is not None
    assert lake.transactions.get(committed.transaction_id).state == "committed"
    # The same objects go on from there.
    change = tables[0].transaction()
    change.append(ROWS)
    lake.commit([change])
    assert rows(lake, space) == [4, 2]


def test_a_conflict_in_one_table_leaves_all_of_them(lake: Lake, space: str) -> None:
    changes = [lake.pyiceberg().load_table((space, table)).transaction() for table in "ab"]
    for change in changes:
        change.append(ROWS)
    lake.pyiceberg().load_table((space, "b")).append(ROWS)
    with pytest.raises(Conflict) as raised:
        lake.commit(changes)
    assert raised.value.tables == ((space, "b"),)
    assert rows(lake, space) == [0, 2]
    with pytest.raises(ValueError, match="failed before"):
        lake.commit(changes)


def test_what_belongs_to_a_transaction_or_is_there_twice_is_not_committed_outside(lake: Lake, space: str) -> None:
    with lake.transaction() as tx:
        change = tx.pyiceberg().load_table((space, "a")).transaction()
        change.set_properties(n="1")
        with pytest.raises(ValueError, match="was loaded from main@"):
            lake.commit([change])
    with pytest.raises(ValueError, match="twice"):
        lake.commit([setting(space, "a", 1), setting(space, "a", 2)])
    assert lake.commit([lake.pyiceberg().load_table((space, "a")).transaction()]).transaction_id is None


def test_a_cut_is_never_torn_and_two_loads_are(lake: Lake, space: str) -> None:
    def numbers(*tables: Any) -> set[str | None]:
        return {table.metadata["properties"].get("n") for table in tables}

    lake.commit([setting(space, "a", 0), setting(space, "b", 0)])
    done = threading.Event()
    cuts = 0
    seen: set[str | None] = set()

    def write() -> None:
        try:
            for number in range(1, 10_000):
                lake.commit([setting(space, "a", number), setting(space, "b", number)])
                if number >= 150 and len(seen) > 1 and cuts > 1:
                    break
        finally:
            done.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not done.is_set():
        cut = lake.read_at([(space, "b"), (space, "a")])
        found = numbers(*cut.values())
        assert len(found) == 1, found
        seen |= found
        cuts += 1
    writer.join()
    assert len(seen) > 1 and cuts > 1
    first = lake.tables.load((space, "a"))
    lake.commit([setting(space, "a", 0), setting(space, "b", 0)])
    assert len(numbers(first, lake.tables.load((space, "b")))) == 2


# --- a server that dies ---


@pytest.mark.parametrize("after_answer", [True, False], ids=["after its answer", "before it heard"])
@pytest.mark.parametrize("step", ["begin", "commit", "commit of many"])
def test_a_server_killed_at_a_step_is_found_out_about_and_it_happens_once(
    tmp_path: Path, step: str, after_answer: bool
) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(running_server(tmp_path))
        make_tables(lakepact.connect(first.url), "s")
        proxy = CuttingProxy(first.url)
        stack.callback(proxy.close)
        # As long as the start of a server may take here, and no number of attempts that a slow start could use up.
        retry = Retry(attempts=1_000_000, longest_pause_s=0.5, deadline_s=PATIENCE_S)
        lake = lakepact.connect(proxy.url, retry=retry)

        def kill_and_start_again() -> None:
            first.process.kill()
            first.process.wait()
            proxy.upstream = stack.enter_context(running_server(tmp_path)).url

        proxy.cut, proxy.after_answer = kill_and_start_again, after_answer
        met = {"begin": "/transactions ", "commit": "/commit ", "commit of many": "/transactions/commit "}[step]
        if step == "commit of many":
            changes = [lake.pyiceberg().load_table(("s", table)).transaction() for table in "ab"]
            for change in changes:
                change.append(ROWS)
            proxy.met = met
            lake.commit(changes)
        else:
            proxy.met = met if step == "begin" else None
            with lake.transaction() as tx:
                append(tx, "s")
                proxy.met = None if step == "begin" else met
            assert len(tx.results) == 2
        assert proxy.cuts == 1
        assert rows(lake, "s") == [2, 2]
        assert [len(table.metadata["snapshots"]) for table in lake.read_at(["s.a", "s.b"]).values()] == [1, 1]
        assert not lake.transactions.list("open")


# --- names, namespaces, tables ---


def test_namespaces_and_tables_by_every_kind_of_name(lake: Lake, space: str) -> None:
    odd = (space, "a.b/c é+%")
    lake.namespaces.create(odd, {"owner": "me"})
    with pytest.raises(AlreadyExists):
        lake.namespaces.create(odd)
    lake.namespaces.create(odd, exist_ok=True)
    assert lake.namespaces.list(space) == (odd,)
    assert list(lake.namespaces.walk(space)) == [odd] and odd in lake.namespaces.walk()
    with pytest.raises(NotFound):
        list(lake.namespaces.walk((space, "nowhere")))
    lake.namespaces.update(odd, {"color": "blue"}, ["owner"])
    assert lake.namespaces.load(odd)["color"] == "blue"
    assert "owner" not in lake.namespaces.load(odd)
    table = (*odd, "t.1 +/é")
    created = lake.tables.create(table, SCHEMA, properties={"x": "1"})
    assert lake.tables.list(odd) == (table,)
    with pytest.raises(NotEmpty):
        lake.namespaces.drop(odd)
    lake.tables.rename(table, (space, "moved"))
    assert not lake.tables.exists(table)
    assert lake.tables.load(f"{space}.moved").uuid == created.uuid
    lake.tables.drop((space, "moved"))
    with pytest.raises(NotFound):
        lake.tables.load((space, "moved"))
    assert lake.tables.register((space, "again"), created.metadata_location).uuid == created.uuid
    lake.namespaces.drop(odd)
    assert not lake.namespaces.exists(odd)


def test_a_warehouse_that_is_not_there_and_one_inside_a_transaction_are_refused(uri: str) -> None:
    with pytest.raises(NotFound, match="main"):
        lakepact.connect(uri, "elsewhere")
    with pytest.raises(ValueError, match="join"):
        lakepact.connect(uri, "main@0198f3a0-0000-7000-8000-000000000000")


# --- the commands ---


@pytest.fixture
def run(uri: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    monkeypatch.setenv("LAKEPACT_URI", uri)
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str, code: int = 0) -> Any:
        result = CliRunner().invoke(app, list(arguments))
        assert result.exit_code == code, result.output
        return json.loads(result.stdout) if "--json" in arguments and code == 0 else result.output

    return invoke


def test_a_transaction_from_the_command_line(run: Callable[..., Any], lake: Lake, space: str) -> None:
    begun = run("tx", "begin", "--ttl", "60", "--property", "who=me", "--isolation", "snapshot", "--json")
    id = begun["id"]
    assert (begun["warehouse"], begun["isolation"], begun["properties"]) == (f"main@{id}", "snapshot", {"who": "me"})
    run("namespaces", "create", f"{space}.inside", "--transaction", id, "--property", "a=b")
    run("tables", "rename", f"{space}.a", f"{space}.inside.a", "--transaction", id)
    assert run("tables", "list", f"{space}.inside", "--transaction", id, "--json") == [[space, "inside", "a"]]
    assert "not-found" in run("tables", "list", f"{space}.inside", code=2)
    assert [space, "inside", "a"] in run("tables", "list", "--transaction", id, "--json")
    assert not [one for one in run("tables", "list", "--json") if one[:2] == [space, "inside"]]
    assert id in run("tx", "list", "--state", "open")
    assert f"{space}.inside.a" in run("tx", "show", id)
    committed = run("tx", "commit", id, "--source", "job=nightly", "--json")
    assert committed["results"][0]["table"] == [space, "inside", "a"]
    assert run("tx", "show", id, "--json")["state"] == "committed"
    assert "transaction-ended" in run("tx", "abort", id, code=2)
    assert f"{space}.inside" in run("namespaces", "list", space)


def test_transactions_are_listed_newest_first_and_it_is_said_when_there_are_more(run: Callable[..., Any]) -> None:
    begun = [run("tx", "begin", "--json")["id"] for _ in range(3)]
    first = run("tx", "list", "--state", "open", "--limit", "2")
    assert re.findall(r"^[0-9a-f-]{36}", first, re.MULTILINE) == [begun[2], begun[1]]
    assert f"--before {begun[1]}" in first
    rest = run("tx", "list", "--state", "open", "--limit", "1", "--before", begun[1], "--json")
    assert [one["id"] for one in rest] == [begun[0]]
    for id in begun:
        run("tx", "abort", id)


def test_an_abort_and_a_conflict_from_the_command_line(run: Callable[..., Any], lake: Lake, space: str) -> None:
    given_up = run("tx", "begin", "--json")["id"]
    assert run("tx", "abort", given_up).startswith("Aborted")
    assert run("tx", "abort", given_up, "--json")["state"] == "aborted"
    late = run("tx", "begin", "--json")["id"]
    append(lake.join(late).begin(renew=False), space)
    lake.pyiceberg().load_table((space, "a")).append(ROWS)
    assert f"{space}.a changed" in run("tx", "commit", late, code=3)
    assert f"{space}.a changed" in run("tx", "show", late)


def test_tables_and_namespaces_from_the_command_line(run: Callable[..., Any], lake: Lake, space: str) -> None:
    lake.pyiceberg().load_table((space, "a")).append(ROWS)
    shown = run("tables", "show", f"{space}.a")
    assert "long" in shown and "append" in shown
    location = run("tables", "show", f"{space}.a", "--json")["metadata-location"]
    run("tables", "drop", f"{space}.a")
    assert run("tables", "list", space, "--json") == [[space, "b"]]
    assert location in run("tables", "register", f"{space}.c", location)
    assert rows_of(lake, space, "c") == 2
    run("namespaces", "create", f"{space}.empty")
    assert run("namespaces", "list", space, "--json") == [[space, "empty"]]
    assert run("namespaces", "drop", f"{space}.empty").startswith("Dropped")
    assert "not-empty" in run("namespaces", "drop", space, code=2)


def rows_of(lake: Lake, space: str, table: str) -> int:
    return int(lake.pyiceberg().load_table((space, table)).scan().to_arrow().num_rows)


# --- the docs ---


def examples(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def readme_example(root: Path) -> str:
    return next(one for one in examples(root / "README.md") if "lakepact.connect" in one)


def test_the_examples_in_the_docs_run(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = examples(root / "docs" / "client.md")
    assert len(pages) > 5
    names: dict[str, Any] = {}
    with running_server(tmp_path) as server:
        monkeypatch.setenv("LAKEPACT_URI", server.url)
        # As somebody reads: the front page first, on the same server.
        exec(compile(readme_example(root).replace("http://127.0.0.1:8181", server.url), "README.md", "exec"), {})
        for example in pages:
            exec(compile(example, "docs/client.md", "exec"), names)


def test_the_transaction_in_the_readme_runs(root: Path, lake: Lake, uri: str) -> None:
    example = readme_example(root)
    for _ in range(2):
        exec(compile(example.replace("http://127.0.0.1:8181", uri), "README.md", "exec"), {})
    assert [rows_of(lake, "sales", table) for table in ("orders", "daily")] == [4, 2]


def test_whoever_says_https_to_a_server_over_http_is_told(lake: Lake) -> None:
    address = lake.uri.replace("http://", "https://")
    with pytest.raises(Unavailable, match="does not speak TLS"):
        lakepact.connect(address, retry=Retry(attempts=1)).namespaces.list()
