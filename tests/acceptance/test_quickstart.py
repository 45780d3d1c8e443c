"""The quickstart, as it stands: every block in order, in one shell and an empty folder; the output is what it shows."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import lakepact
from lakepact.settings import Settings
from tests.support.ports import reserved_port
from tests.support.server import running_server
from tests.support.waiting import PATIENCE_S

_BLOCK: Final = re.compile(
    r"(?:^`(?P<file>[\w.]+)`:\n\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_WITHIN_S: Final = 1_000.0
_MARK: Final = "---- the next block ----"


@dataclass(frozen=True)
class Step:
    commands: str
    shown: list[str]


def steps(page: str, folder: Path) -> Iterator[Step]:
    """The blocks of commands, each with the output that follows it. Programs are written into the folder on the way."""
    blocks = list(_BLOCK.finditer(page))
    for number, block in enumerate(blocks):
        if block["kind"] == "python":
            (folder / block["file"]).write_text(block["text"])
        elif block["kind"] == "sh":
            after = blocks[number + 1] if number + 1 < len(blocks) else None
            yield Step(block["text"], after["text"].splitlines() if after and not after["kind"] else [])


def environment() -> dict[str, str]:
    ours = {f"LAKEPACT_{name.upper()}" for name in [*Settings.model_fields, "config", "token", "token_file", "uri"]}
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    return {**kept, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"}


def quickstart(root: Path, port: int) -> str:
    """The page, with another port than the one it names. It names no other."""
    page = (root / "docs" / "quickstart.md").read_text()
    assert "8181" not in page
    return page.replace("8182", str(port))


def example(root: Path, page: str, containing: str, url: str) -> str:
    """The first Python example of a page that contains this, for a server at this address."""
    blocks = re.findall(r"^```python\n(.*?)^```", (root / page).read_text(), re.MULTILINE | re.DOTALL)
    found = next(block for block in blocks if containing in block)
    assert "http://127.0.0.1:8181" in found
    return str(found.replace("http://127.0.0.1:8181", url))


def test_the_pages_can_be_followed_one_after_another(root: Path, tmp_path: Path) -> None:
    """The front page, then the quickstart with the first server still running, then the page of the engines."""
    with running_server(tmp_path / "first") as first, lakepact.connect(first.url) as lake:
        exec(compile(example(root, "README.md", "lakepact.connect", first.url), "README.md", "exec"), {})
        before = {name: lake.tables.load(name) for name in ("sales.orders", "sales.daily")}
        follow_the_quickstart(root, tmp_path)
        assert {name: lake.tables.load(name) for name in before} == before
        exec(compile(example(root, "docs/engines.md", "load_catalog", first.url), "engines.md", "exec"), {})
        assert sorted(lake.read("sales.orders")["id"].to_pylist()) == [1, 2, 3, 4]


def test_a_server_whose_port_is_taken_says_so_in_the_quickstart(root: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        first = next(steps(quickstart(root, port), tmp_path))
        done = subprocess.run(
            ["bash", "-c", first.commands],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
    assert done.stdout.startswith(f"error: invalid-setting: port {port} of 127.0.0.1 is in use")


def follow_the_quickstart(root: Path, tmp_path: Path) -> None:
    page = quickstart(root, reserved_port())
    folder = tmp_path / "quickstart"
    folder.mkdir()
    found = list(steps(page, folder))
    assert len(found) > 8
    # The folder is there already, with the programs in it.
    script = f"\necho '{_MARK}'\n".join(step.commands.replace("mkdir ", "mkdir -p ") for step in found)
    ended = "trap 'kill $(jobs -p) 2> /dev/null; wait' EXIT\n"
    with subprocess.Popen(
        ["bash", "-c", ended + script],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            output, _ = shell.communicate(timeout=_WITHIN_S)
        finally:
            # Servers that are left if it did not come to its end.
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    told = output.split(f"{_MARK}\n")
    assert len(told) == len(found), output
    for step, text in zip(found, told, strict=True):
        lines = "".join(".*" if part == "…" else re.escape(part) for part in re.split("(…)", "\n".join(step.shown)))
        assert re.search(rf"^{lines}\s*$", text, re.DOTALL), (
            f"{step.commands}\nshould say\n{step.shown}\nand says\n{text}"
        )
