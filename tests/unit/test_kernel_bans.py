"""The linters really keep clocks, chance and event loops out of the kernel, and say what to use instead."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BANNED = [
    ("import asyncio", "Tasks port"),
    ("from time import monotonic", "Clock"),
    ("import random", "Rng port"),
    ("import secrets", "Rng port"),
    ("from uuid import uuid4", "uuid7"),
    ("import datetime\n\nx = datetime.datetime.now()", "Clock.now_ms"),
]


def ruff(root: Path, path: str, source: str) -> str:
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--select", "TID251", "--stdin-filename", path, "-"]
    return subprocess.run(command, cwd=root, input=source, capture_output=True, text=True).stdout


@pytest.mark.parametrize(("source", "substitute"), BANNED)
def test_a_ban_holds_in_the_kernel_and_names_its_substitute(root: Path, source: str, substitute: str) -> None:
    found = ruff(root, "src/lakepact/kernel/invented.py", source + "\n")
    assert "TID251" in found
    assert substitute in found


@pytest.mark.parametrize("path", ["src/lakepact/runtime.py", "src/lakepact/stores/invented.py", "tests/invented.py"])
def test_outside_the_kernel_nothing_is_banned(root: Path, path: str) -> None:
    assert "TID251" not in ruff(root, path, "".join(f"{source}\n" for source, _ in BANNED))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("kernel/invented.py", "import time"),
        ("kernel/invented.py", "from lakepact.runtime import SystemClock"),
        ("stores/invented.py", "import lakepact.cli"),
        ("catalog/__init__.py", "import lakepact.stores"),
        ("undeclared/__init__.py", ""),
    ],
)
def test_the_import_contracts_break_when_they_should(root: Path, tmp_path: Path, module: str, source: str) -> None:
    shutil.copytree(root / "src" / "lakepact", tmp_path / "lakepact", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(root / "pyproject.toml", tmp_path)
    path = tmp_path / "lakepact" / module
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{source}\n")
    code = "import sys; sys.path.insert(0, '.'); from importlinter.cli import lint_imports as lint; sys.exit(lint())"
    found = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 1, found.stdout + found.stderr
    assert "BROKEN" in found.stdout
