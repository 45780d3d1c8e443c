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

from lakepact.settings import Settings

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


def environment(port: int) -> dict[str, str]:
    ours = {f"LAKEPACT_{name.upper()}" for name in [*Settings.model_fields, "config", "token", "token_file", "uri"]}
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    return {**kept, "PATH": path, "LAKEPACT_PORT": str(port), "LAKEPACT_URI": f"http://127.0.0.1:{port}"}


def test_the_quickstart_says_what_happens(root: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    page = (root / "docs" / "quickstart.md").read_text().replace(":8181", f":{port}")
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
        env=environment(port),
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
