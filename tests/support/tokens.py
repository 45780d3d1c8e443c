"""API tokens for a server that runs beside the tests, made as its operator makes them: by `lakepact tokens create`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from lakepact.cli import app


@dataclass(frozen=True, slots=True)
class ApiToken:
    id: str
    text: str = field(repr=False)
    credential: str = field(repr=False)

    @property
    def secret(self) -> str:
        return self.credential.partition(":")[2]


def store_of(folder: Path) -> str:
    """The store of `running_server(folder)`."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{folder}/data/lakepact.db"


def create_token(folder: Path, name: str, *options: str) -> ApiToken:
    made = command("tokens", "create", name, "--store", store_of(folder), "--json", *options)
    document: dict[str, Any] = json.loads(made)
    return ApiToken(document["id"], document["token"], document["credential"])


def command(*arguments: str, env: Mapping[str, str] | None = None) -> str:
    """What the command prints. In this process: to start another takes longer than what it does."""
    ended = CliRunner().invoke(app, list(arguments), env=dict(env or {}))
    assert ended.exit_code == 0, ended.stderr
    return ended.stdout
