"""What is SQLite's own: a file of the release before, and several processes' worth of handles on one file."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from lakepact.runtime import SystemRng
from lakepact.stores.sql_format import FORMAT
from lakepact.stores.sqlite import SqliteCells
from lakepact.stores.sqlite_schema import APPLICATION_ID, STEPS
from tests.conformance.cells.world import SETTINGS, A, SteeredClock


async def test_a_file_of_the_release_before_gets_the_tables_and_keeps_its_cells(tmp_path: Path) -> None:
    path = tmp_path / "cells.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(STEPS[1])
    connection.execute("INSERT INTO cells VALUES (?, 1, '{\"n\":1}', NULL, 1, NULL)", (A,))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    store = await SqliteCells.open(path, SETTINGS, SteeredClock(), SystemRng())
    assert (await store.read([A]))[A].value == {"n": 1}
    assert list(await store.delta.tables("main")) == []
    await store.close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (FORMAT,)
    assert (
        connection.execute("SELECT * FROM dl_mirror_status WHERE mirrored_version < current_version").fetchall() == []
    )
    connection.close()
