"""DataFusion and Polars, as they are, run the code blocks of docs/engines.md against a server process.

Each script is the page's block for PyIceberg, which writes two rows, followed by the block for the engine. Only the
address of the server is replaced. `tests.support.wheels` installs DataFusion; Polars is one of the pinned packages of
the development environment.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from unittest import mock

import pytest
from packaging.requirements import Requirement

from tests.interop.credentials import server_env, without_keys
from tests.support import s3_guarded
from tests.support.live_tables import catalog_at
from tests.support.s3_guarded import Guard
from tests.support.server import Server, running_server
from tests.support.wheels import DATAFUSION, run_with

PAGE = (Path(__file__).parents[2] / "docs" / "engines.md").read_text()
ADDRESS = "http://127.0.0.1:8181"
TWO_ROWS_IN_DATAFUSION = re.compile(r"\| count\(\*\) \|\n\+-+\+\n\| 2 +\|\n")
TWO_ROWS_IN_POLARS = "shape: (2, 4)"
OWN_KEY = "KEYOFTHEENGINE00"


@pytest.fixture(autouse=True)
def no_keys_in_the_environment() -> Iterator[None]:
    with mock.patch.dict(os.environ, without_keys(), clear=True):
        yield


@pytest.fixture(scope="module")
def guard() -> Iterator[Guard]:
    with s3_guarded.running() as running:
        yield running


@pytest.fixture(scope="module")
def local_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("frames")) as running:
        yield running


@pytest.fixture(scope="module")
def s3_server(guard: Guard, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("frames_s3"), env=server_env(guard)) as running:
        yield running


@pytest.fixture
def on_local_files(local_server: Server) -> Iterator[str]:
    """The address of a server without `sales.orders`, whose warehouse is a folder."""
    yield local_server.url
    drop_orders(local_server.url)


@pytest.fixture
def on_s3(s3_server: Server) -> Iterator[str]:
    """The address of a server without `sales.orders`, whose warehouse is in S3 and which vends credentials."""
    yield s3_server.url
    drop_orders(s3_server.url)


def drop_orders(url: str) -> None:
    catalog = catalog_at(url)
    if catalog.table_exists("sales.orders"):
        catalog.drop_table("sales.orders")


def section(heading: str) -> str:
    """Return the text of the page below this heading, up to the next one."""
    [text] = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return str(text)


def block(heading: str) -> str:
    """Return the one Python block of a section."""
    [code] = re.findall(r"^```python\n(.*?)^```", section(heading), re.MULTILINE | re.DOTALL)
    return str(code)


def without(text: str, code: str) -> str:
    """Return the code without this text, which must occur in it once."""
    assert code.count(text) == 1, f"expected {text!r} once in the block of docs/engines.md:\n{code}"
    return code.replace(text, "")


def run(requirements: tuple[str, ...], recipe: str, url: str, folder: Path, env: dict[str, str] | None = None) -> str:
    """Run the block for PyIceberg and then the recipe in one process. Return what they print."""
    connect = block("PyIceberg")
    assert connect.count(ADDRESS) == 1, f"the block for PyIceberg in docs/engines.md must name {ADDRESS} once"
    script = folder / "recipe.py"
    script.write_text(connect.replace(ADDRESS, url) + recipe)
    return run_with(requirements, script, env=env)


def check_that_data_files_were_read_with_vended_keys_alone(guard: Guard, since: int) -> None:
    requests = guard.seen[since:]
    assert not [request for request in requests if request[3] in (400, 401, 403)], requests
    keys = {key for key, method, path, _ in requests if method == "GET" and path.partition("?")[0].endswith(".parquet")}
    assert keys and keys <= guard.sessions.keys(), requests


def test_the_page_names_the_versions_that_are_run() -> None:
    pins = dict(pin.split("==") for pin in DATAFUSION)
    versions = section("What was really run")
    assert f"| DataFusion with pyiceberg-core | {pins['datafusion']}, {pins['pyiceberg-core']} |" in versions
    assert f"| Polars | {version('polars')} |" in versions
    [command] = re.findall(r"`pip install (.*?)`", section("DataFusion"))
    requirements = [Requirement(text) for text in shlex.split(command)]
    assert {requirement.name for requirement in requirements} == pins.keys()
    assert all(requirement.specifier.contains(pins[requirement.name]) for requirement in requirements)


def test_the_datafusion_recipe_counts_the_rows_of_a_table_on_local_files(on_local_files: str, tmp_path: Path) -> None:
    printed = run(DATAFUSION, block("DataFusion"), on_local_files, tmp_path)
    assert TWO_ROWS_IN_DATAFUSION.search(printed), printed


def test_the_datafusion_recipe_counts_the_rows_of_a_table_in_s3_with_vended_credentials(
    on_s3: str, guard: Guard, tmp_path: Path
) -> None:
    since = len(guard.seen)
    printed = run(DATAFUSION, block("DataFusion"), on_s3, tmp_path)
    assert TWO_ROWS_IN_DATAFUSION.search(printed), printed
    check_that_data_files_were_read_with_vended_keys_alone(guard, since)


def test_datafusion_refuses_file_access_properties_that_are_not_strings(on_local_files: str, tmp_path: Path) -> None:
    """So the line that removes them is needed, and the error is the one that the page warns of."""
    [line] = [line for line in block("DataFusion").splitlines(True) if line.startswith("table.io.properties = ")]
    [message] = re.findall(r"DataFusion reports `(.*?)`", section("DataFusion"))
    with pytest.raises(RuntimeError, match=f"ImportError: {re.escape(message)}"):
        run(DATAFUSION, without(line, block("DataFusion")), on_local_files, tmp_path)


def test_the_polars_recipe_reads_a_table_on_local_files(on_local_files: str, tmp_path: Path) -> None:
    assert TWO_ROWS_IN_POLARS in run((), block("Polars"), on_local_files, tmp_path)


def test_polars_needs_no_storage_options_on_local_files(on_local_files: str, tmp_path: Path) -> None:
    recipe = without(", storage_options=table.io.properties", block("Polars"))
    assert TWO_ROWS_IN_POLARS in run((), recipe, on_local_files, tmp_path)


def test_the_polars_recipe_reads_a_table_in_s3_with_vended_credentials(
    on_s3: str, guard: Guard, tmp_path: Path
) -> None:
    since = len(guard.seen)
    assert TWO_ROWS_IN_POLARS in run((), block("Polars"), on_s3, tmp_path)
    check_that_data_files_were_read_with_vended_keys_alone(guard, since)


def test_polars_without_storage_options_uses_credentials_of_its_own_and_not_the_vended_ones(
    on_s3: str, guard: Guard, tmp_path: Path
) -> None:
    """The environment names the test's S3 and a key that it does not know, so that no other host is asked."""
    since = len(guard.seen)
    recipe = without(", storage_options=table.io.properties", block("Polars"))
    own = {
        "AWS_ACCESS_KEY_ID": OWN_KEY,
        "AWS_SECRET_ACCESS_KEY": "own-secret",
        "AWS_REGION": s3_guarded.REGION,
        "AWS_ENDPOINT_URL": guard.url,
        "AWS_ALLOW_HTTP": "true",
    }
    with pytest.raises(RuntimeError, match="InvalidAccessKeyId"):
        run((), recipe, on_s3, tmp_path, own)
    assert {status for key, _, _, status in guard.seen[since:] if key == OWN_KEY} == {403}
