"""Every command is documented, answers in text or JSON, and ends with the code its error stands for."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from lakepact import __version__
from lakepact.cli import app
from lakepact.cli.app import CA_BUNDLE_VARIABLE
from lakepact.cli.output import EXIT_CODES, exit_code, print_json, print_rows, report, say
from lakepact.cli.serve import announcement
from lakepact.client import Conflict, NotFound, TransactionClosed, Unavailable, Unknown, http
from lakepact.errors import (
    Contended,
    FormatTooNew,
    InvalidSetting,
    LakepactError,
    OutcomeUnknown,
    SnapshotTooOld,
    StoreUnavailable,
    StoreUnsuitable,
    WrongState,
)
from lakepact.kernel.identity import uuid7
from lakepact.kernel.keys import key_of
from lakepact.kernel.model import Transaction, Write
from lakepact.runtime import SystemClock
from lakepact.settings import Settings
from lakepact.stores import open_store
from lakepact.upkeep.lease import UPKEEP
from tests.support.ports import refusing_port


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def commands() -> Iterator[tuple[str, Any]]:
    def walk(command: Any, path: str) -> Iterator[tuple[str, Any]]:
        names = command.list_commands(None) if hasattr(command, "list_commands") else None
        if names is None or command.invoke_without_command:
            yield path, command
        for name in names or ():
            yield from walk(command.get_command(None, name), f"{path} {name}")

    yield from walk(typer.main.get_command(app), "lakepact")


@pytest.fixture(autouse=True)
def an_empty_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [*Settings.model_fields, "config"]:
        monkeypatch.delenv(f"LAKEPACT_{name.upper()}", raising=False)


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def transaction_id(store_url: str) -> str:
    """A store with one committed transaction in it."""

    async def prepare() -> str:
        store = await open_store(store_url)
        made = uuid7(SystemClock().now_ms(), 1)
        await store.commit(Transaction(made, "", (Write(key_of("a", "b"), 0, {"x": 1}),)))
        await store.close()
        return made

    return asyncio.run(prepare())


# --- the docs --------------------------------------------------------------------------------------------------------


def test_the_docs_describe_exactly_the_commands_there_are(root: Path) -> None:
    text = (root / "docs" / "cli.md").read_text()
    described = set(re.findall(r"^### `(lakepact [a-z ]+)`$", text, re.MULTILINE))
    assert described == {path for path, _ in commands()}


@pytest.mark.parametrize(("path", "command"), [pytest.param(*found, id=found[0]) for found in commands()])
def test_the_docs_name_every_option_of_a_command_or_explain_it_once_for_all(
    root: Path, path: str, command: Any
) -> None:
    text = (root / "docs" / "cli.md").read_text()
    introduction = text.split("## Exit codes")[0]
    section = text.split(f"### `{path}`\n", 1)[1].split("\n### ", 1)[0]
    options = {name for option in command.params for name in option.opts if name.startswith("--")}
    assert not {name for name in options if f"`{name}" not in introduction + section}


@pytest.mark.parametrize("path", [path for path, _ in commands()])
def test_every_command_explains_itself(path: str) -> None:
    result = run(*path.split()[1:], "--help")
    assert result.exit_code == 0
    assert "Usage" in result.output


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_version_and_help_import_neither_the_server_nor_its_libraries(option: str) -> None:
    code = (
        "import sys, runpy, os\n"
        f"sys.argv = ['lakepact', {option!r}]\n"
        "def ended(code):\n"
        "    names = ('pydantic', 'structlog', 'rich', 'asyncio', 'orjson')\n"
        "    print([name for name in sys.modules if name.split('.')[0] in names])\n"
        "    ours = ('lakepact.server', 'lakepact.client', 'lakepact.catalog')\n"
        "    print([name for name in sys.modules if name.startswith(ours)])\n"
        "    sys.stdout.flush()\n"
        "os._exit = ended\n"
        "runpy.run_module('lakepact', run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-2:] == ["[]", "[]"]


@pytest.mark.parametrize("path", ["", "tables", "gc", "tables list"])
def test_help_shows_flags_without_a_type_and_cuts_no_line_of_its_own(path: str) -> None:
    shown = run(*path.split(), "--help").output
    assert "<bool>" not in shown
    assert path or "..." not in shown.partition("Commands:")[2]


def test_a_port_where_nothing_listens_is_refused_at_the_first_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    # The client is never asked, so nothing is retried.
    monkeypatch.setattr("lakepact.cli.options.connect", None)
    with refusing_port() as port:
        result = run("namespaces", "list", "--uri", f"http://127.0.0.1:{port}")
    assert result.exit_code == 4
    assert f"cannot connect to http://127.0.0.1:{port}: connection refused. Is the server running?" in result.stderr


def test_the_advice_of_an_ended_transaction_is_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    error = TransactionClosed("transaction 1 has expired. Begin a new one", transaction_id="1", state="aborted")
    assert report(error, as_json=False) == 2
    assert capsys.readouterr().err.endswith("has expired. Begin a new one: lakepact tx begin\n")


def test_the_variable_of_the_ca_bundle_is_the_clients() -> None:
    assert CA_BUNDLE_VARIABLE == http.CA_BUNDLE_VARIABLE


def test_the_docs_list_every_exit_code(root: Path) -> None:
    text = (root / "docs" / "cli.md").read_text()
    assert re.findall(r"^\| (\d) \|", text, re.MULTILINE) == ["0", "1", "2", "3", "4", "5", "6"]
    assert {code for _, code in EXIT_CODES} == {2, 3, 4, 5, 6}


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidSetting(""), 2),
        (WrongState(""), 2),
        (StoreUnsuitable(""), 2),
        (Contended(""), 3),
        (SnapshotTooOld(""), 3),
        (StoreUnavailable(""), 4),
        (OutcomeUnknown("id", ""), 6),
        (FormatTooNew(""), 5),
        (LakepactError(""), 6),
        (Conflict(""), 3),
        (NotFound(""), 2),
        (Unavailable(""), 4),
        (Unknown("", "", None), 6),
    ],
)
def test_each_kind_of_error_has_its_exit_code(error: LakepactError, code: int) -> None:
    assert exit_code(error) == code


@pytest.mark.parametrize(
    ("arguments", "type"),
    [
        (["transactions", "show", "7"], "invalid-transaction-id"),
        (["recover", "--store", "carrier-pigeon://coop"], "invalid-setting"),
        (["store", "probe", "lakepact.db"], "invalid-setting"),
        (["tx", "show", "7"], "invalid-transaction-id"),
        (["tx", "begin", "--property", "loud"], "invalid-request"),
        (["tx", "list", "--uri", "127.0.0.1"], "invalid-setting"),
        (["tables", "show", "orders"], "invalid-request"),
        (["namespaces", "create", "a..b"], "invalid-request"),
    ],
)
def test_an_error_is_its_type_and_message_without_a_traceback(arguments: list[str], type: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"error: {type}: ")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["tables", "show", "orders"], "'orders' has no namespace; write it before the name, as in sales.orders"),
        (["namespaces", "create", "a..b"], "write its levels with a dot between two"),
        (["tables", "list", "sales", "--warehouse", "main@7"], "Write --warehouse main --transaction 7"),
        (["tx", "show", "7"], "Copy the whole id from where it was shown"),
        (["tables", "list", "sales", "--token", "lakepact_…"], "a character that no token has: '…' at place 10 of 10"),
    ],
)
def test_advice_is_for_who_sits_at_a_terminal(arguments: list[str], advice: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert advice in result.stderr
    assert "lake." not in result.stderr and "('" not in result.stderr


def test_an_error_is_a_document_if_json_was_asked_for() -> None:
    result = run("transactions", "show", "7", "--json")
    assert result.exit_code == 2
    assert json.loads(result.stderr)["error"]["type"] == "invalid-transaction-id"


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with refusing_port() as port:
        result = run("namespaces", "list", "--uri", f"http://127.0.0.1:{port}")
    assert result.exit_code == 4
    assert "unavailable" in result.stderr


def test_a_wrong_option_is_bad_input_too() -> None:
    assert run("recover", "--limit", "0").exit_code == 2


def test_a_password_never_reaches_the_screen() -> None:
    for arguments in (["config", "show"], ["config", "show", "--json"]):
        result = run(*arguments, "--store", "postgresql://me:hush@host/db")
        assert result.exit_code == 0
        assert "hush" not in result.output


# --- what they do ----------------------------------------------------------------------------------------------------


def test_version() -> None:
    assert run("--version").output == f"lakepact {__version__}\n"


def test_config_show_lists_every_setting() -> None:
    shown = json.loads(run("config", "show", "--json").output)
    assert set(shown.pop("sources")) == set(shown) == set(Settings.model_fields)
    text = run("config", "show").output
    assert all(name in text for name in Settings.model_fields)


def test_config_show_writes_what_is_not_set_and_what_is_true_as_the_docs_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEPACT_WAREHOUSES", '{"b": {"url": "s3://b/c", "options": {"region": "eu"}}}')
    lines = run("config", "show").output.splitlines()
    shown = {name: (value, rest) for name, value, rest in (re.split(r"  +", line, maxsplit=2) for line in lines)}
    for name in ("store_options", "grpc_port", "tls_cert", "warehouse_credentials"):
        assert shown[name][0] == "none", name
    assert (shown["ui"][0], shown["insecure"][0], shown["lease_s"][0]) == ("true", "false", "10")
    assert shown["mirrors"][0] == "delta_log"
    assert shown["warehouses"][0] == "b={url=s3://b/c, options={region=eu}, account=default}"
    assert shown["warehouses"][1].startswith("environment")
    assert "see docs/storage-credentials.md." in shown["warehouse_credentials"][1]


def test_config_show_says_where_each_value_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lakepact.toml").write_text('port = 1\nhost = "::1"\n[store_options]\nregion = "eu"\n')
    monkeypatch.setenv("LAKEPACT_PORT", "2")
    monkeypatch.setenv("LAKEPACT_STORE_OPTIONS", '{"endpoint": "http://here"}')
    sources = json.loads(run("config", "show", "--json", "--store", "memory://").output)["sources"]
    assert sources["store"] == "option"
    assert (sources["port"], sources["host"], sources["ui"]) == ("environment", "file", "default")
    assert sources["store_options"] == "environment and file"


@pytest.mark.parametrize("command", [("config", "show"), ("serve",), ("tokens", "list")], ids=" ".join)
def test_a_settings_file_that_cannot_be_read_is_an_error_and_no_traceback(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "lakepact.toml").mkdir()
    result = run(*command)
    assert result.exit_code == 2
    assert "lakepact.toml is a folder" in result.stderr


def test_serve_refuses_what_it_cannot_serve_on_before_it_opens_anything(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = run("serve", "--port", str(taken.getsockname()[1]))
    assert result.exit_code == 2
    assert "is in use" in result.stderr
    assert "--port" in result.stderr
    assert run("serve", "--warehouse", "lakehouse").exit_code == 2
    assert not list(tmp_path.iterdir())


def test_serve_prints_where_it_is_and_a_line_for_each_engine() -> None:
    settings = Settings.load(store="postgresql://me:hush@host/db", default_warehouse="lake")
    text = "\n".join(announcement(settings, "http://127.0.0.1:1234/catalog"))
    assert f"Lakepact {__version__} listens on http://127.0.0.1:1234/catalog\n" in text
    assert "The web page is at http://127.0.0.1:1234/catalog/ui\n" in text
    assert "/ui" not in "\n".join(announcement(Settings.load(ui=False), "http://127.0.0.1:1234"))
    assert "hush" not in text
    for engine in ("Spark", "PyIceberg", "DuckDB"):
        assert re.search(rf"^  {engine} .*lake.*http://127.0.0.1:1234/catalog|^  {engine} .*http://.*lake", text, re.M)


def test_the_line_for_spark_has_all_that_spark_needs() -> None:
    def line(**settings: Any) -> str:
        lines = announcement(Settings.load(**settings), "http://127.0.0.1:1234")
        return next(line for line in lines if line.startswith("  Spark"))

    local = line()
    assert "spark.sql.extensions=org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions" in local
    assert "bundle" not in local and "io-impl" not in local
    bucket = line(warehouse="s3://bucket/x", warehouse_credentials={"role_arn": "arn:aws:iam::123456789012:role/x"})
    assert "iceberg-spark-runtime-4.1_2.13:1.12.0,org.apache.iceberg:iceberg-aws-bundle:1.12.0 " in bucket
    assert "spark.sql.catalog.lake.io-impl=org.apache.iceberg.aws.s3.S3FileIO" in bucket
    assert "X-Iceberg-Access-Delegation=vended-credentials" in bucket


def test_the_lines_for_spark_and_in_the_docs_are_the_same(root: Path) -> None:
    lines = announcement(Settings.load(), "http://127.0.0.1:8181")
    printed = next(line for line in lines if line.startswith("  Spark")).removeprefix("  Spark").split()
    section = (root / "docs" / "engines.md").read_text().split("## Spark\n", 1)[1].split("```")[1]
    assert printed == section.removeprefix("sh").replace("\\\n", " ").split()


def test_serve_prints_both_places_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "\n".join(announcement(Settings.load(), "http://127.0.0.1:1234"))
    folder = f"{tmp_path}/lakepact-data"
    assert f"Store sqlite:///{folder}/lakepact.db, warehouse main at file://{folder}/warehouse\n" in text
    text = "\n".join(announcement(Settings.load(store="sqlite:////var/x.db"), "http://127.0.0.1:1234"))
    assert "Store sqlite:////var/x.db," in text


def test_serve_says_where_a_token_goes_if_it_asks_for_one() -> None:
    text = "\n".join(announcement(Settings.load(auth="tokens"), "http://127.0.0.1:1234"))
    assert text.count("$LAKEPACT_TOKEN") == 3
    assert "AUTHORIZATION_TYPE" not in text


def test_a_store_that_works_is_found_usable(store_url: str) -> None:
    run("tokens", "create", "ann", "--store", store_url)
    assert "is usable" in run("store", "probe", store_url).output
    assert json.loads(run("store", "probe", store_url, "--json").output)["usable"] is True


def test_recover_and_collect_say_what_they_did(store_url: str, transaction_id: str) -> None:
    assert run("recover", "--store", store_url).output.startswith("0 finished")
    assert json.loads(run("recover", "--store", store_url, "--json").output)["left"] == 0
    assert run("collect", "--store", store_url).output.startswith("0 trimmed")
    assert json.loads(run("collect", "--store", store_url, "--json").output)["deleted"] == 0


def test_transactions_are_listed_by_state_and_age(store_url: str, transaction_id: str) -> None:
    def listed(*options: str) -> list[str]:
        page = json.loads(run("transactions", "list", "--store", store_url, "--json", *options).output)
        return [entry["id"] for entry in page["transactions"]]

    assert listed() == [transaction_id]
    assert listed("--state", "committed", "--state", "open") == [transaction_id]
    assert listed("--state", "failed") == []
    assert listed("--older-than-s", "3600") == []
    assert transaction_id in run("transactions", "list", "--store", store_url).output


def test_a_transaction_is_shown_with_what_it_wrote(store_url: str, transaction_id: str) -> None:
    shown = json.loads(run("transactions", "show", transaction_id, "--store", store_url, "--json").output)
    assert shown["state"] == "committed"
    assert shown["writes"] == [{"key": "a/b", "revision": 0, "value": {"x": 1}}]
    text = run("transactions", "show", transaction_id, "--store", store_url).output
    assert "committed" in text
    assert "a/b" in text


def test_a_transaction_that_is_not_there_is_bad_input(store_url: str, transaction_id: str) -> None:
    result = run("transactions", "show", uuid7(SystemClock().now_ms(), 2), "--store", store_url)
    assert result.exit_code == 2
    assert "transaction-not-found" in result.stderr


def test_the_demo_refuses_a_store_that_processes_cannot_share() -> None:
    result = run("demo", "bank", "--store", "memory://")
    assert result.exit_code == 2
    assert "memory://" in result.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("backup", "x.gz"),
        ("transactions", "list"),
        ("tokens", "list"),
        ("collect",),
        ("recover",),
        ("reconcile",),
        ("gc",),
        ("pack",),
        ("mirror", "status"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("store", ["sqlite:///typo/lakepact.db", "file://{here}/typo"])
def test_to_look_after_a_store_that_is_not_there_is_an_error_and_makes_none(
    command: tuple[str, ...], store: str, tmp_path: Path
) -> None:
    result = run(*command, "--store", store.format(here=tmp_path))
    assert result.exit_code == 2, result.output
    assert "there is no store at" in result.output
    assert not (tmp_path / "typo").exists()
    assert not (tmp_path / "x.gz").exists()


def test_a_token_says_which_store_it_is_in() -> None:
    result = run("tokens", "create", "ann", "--store", "sqlite:///new/lakepact.db")
    assert result.exit_code == 0
    assert "sqlite:///new/lakepact.db" in result.output


def test_a_restore_into_other_warehouses_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    async def made() -> None:
        store = await open_store(f"sqlite:///{tmp_path}/a/lakepact.db")
        pointer = {"namespace": ["db"], "name": "t", "metadata-location": f"file://{tmp_path}/a/warehouse/t/m.json"}
        written = Write(key_of("main", "tables", "1"), 0, pointer)
        await store.commit(Transaction(uuid7(SystemClock().now_ms(), 1), "", (written,), answer={}))
        await store.close()

    asyncio.run(made())
    assert run("backup", "x.gz", "--store", f"sqlite:///{tmp_path}/a/lakepact.db").exit_code == 0
    result = run("restore", "x.gz", "--store", f"sqlite:///{tmp_path}/b/lakepact.db")
    assert result.exit_code == 2, result.output
    assert "Set the warehouses as they were" in result.output
    assert not (tmp_path / "b").exists()
    assert run("restore", "nowhere.gz", "--store", "sqlite:///b/lakepact.db").exit_code == 2


def test_a_backup_says_the_same_number_twice_and_its_check_says_what_was_looked_at(
    store_url: str, transaction_id: str
) -> None:
    async def looked_after() -> None:
        store = await open_store(store_url)
        made = uuid7(SystemClock().now_ms(), 3)
        await store.commit(Transaction(made, "", (Write(UPKEEP, 0, {"by": "somebody"}),)))
        await store.close()

    asyncio.run(looked_after())
    result = run("backup", "x.gz", "--store", store_url)
    assert "  1 cells" in result.stderr.splitlines()
    assert "x.gz: 1 cells" in result.stdout
    checked = run("restore", "--check", "x.gz")
    assert checked.exit_code == 0, checked.output
    assert "read 1 cells and 2 records" in checked.stdout and "the file is whole" in checked.stdout
    assert "looked for the metadata files of 0 tables and views; none missing" in checked.stdout


def test_a_backup_into_a_folder_that_is_not_there_is_refused_before_anything_is_read(
    store_url: str, transaction_id: str, tmp_path: Path
) -> None:
    result = run("backup", "typo/x.gz", "--store", store_url)
    assert result.exit_code == 2
    assert f"there is no folder {tmp_path}/typo; make it" in result.stderr
    assert "records" not in result.stderr


def test_a_file_that_is_no_backup_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "junk").write_text("hello")
    result = run("restore", "--check", "junk")
    assert result.exit_code == 2
    assert "junk is no backup of Lakepact; name a file" in result.stderr


# --- what is printed ---


def test_a_row_is_one_line_and_nothing_of_it_is_cut_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    path = "s3://lake/" + "a" * 500
    print_rows(("", ""), [("metadata", path), ("a longer one", "x")])
    assert capsys.readouterr().out.splitlines() == [f"metadata      {path}", "a longer one  x"]


def test_a_name_does_nothing_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    name = "sales\u202egnp\x1b[2J\nnext"
    print_rows(("table",), [(name,)])
    say(f"Dropped {name}")
    print_json({"name": name})
    out = capsys.readouterr().out
    assert "\u202e" not in out and "\x1b" not in out
    assert "sales\\u202egnp\\u001b[2J\\u000anext" in out
    assert json.loads(out[out.index("{") :])["name"] == name


def test_a_tab_is_printed_as_it_is_except_in_a_cell_of_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    say("a\tb")
    assert capsys.readouterr().out == "a\tb\n"
    print_rows(("name",), [("a\tb",)])
    assert capsys.readouterr().out.splitlines()[-1] == "a\\u0009b"
