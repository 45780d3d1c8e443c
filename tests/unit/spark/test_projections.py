"""What the projections' job decides without Spark: days, places, the position, and how often it runs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from lakepact.cli.options import seconds
from lakepact.cli.project import project
from lakepact.client.state import Document
from lakepact.errors import InvalidRequest
from lakepact.spark.jobs.projections.layout import is_day, last_closed
from lakepact.spark.jobs.projections.position import NAME, Position
from lakepact.spark.jobs.projections.storage import Root, escaped
from lakepact.spark.jobs.projections.tables import ALL, FORMAT


@pytest.mark.parametrize(
    ("now", "closed"),
    [
        ("2026-03-02T02:59:59", "2026-02-28"),
        ("2026-03-02T03:00:00", "2026-03-01"),
        ("2026-03-02T23:59:59", "2026-03-01"),
    ],
)
def test_a_day_is_closed_some_hours_after_its_end(now: str, closed: str) -> None:
    assert last_closed(int(datetime.fromisoformat(now).replace(tzinfo=UTC).timestamp() * 1000)) == closed


def test_only_days_are_days() -> None:
    assert is_day("2026-02-28")
    assert not any(map(is_day, ("2026-02-30", "20260228", "2026-2-28", "manifest.json", "")))


@pytest.mark.parametrize(
    ("told", "reached", "location", "found"),
    [
        ("file:///lake", None, "file:///lake/a/m.json", "file:///lake/a/m.json"),
        ("s3://lake/x", None, "s3://lake/x/a", "s3a://lake/x/a"),
        ("s3://lake/x", None, "s3://other/a", "s3a://other/a"),
        ("az://lake", "abfss://lake@account/", "az://lake/a", "abfss://lake@account/a"),
        ("az://lake", "abfss://lake@account", "az://lakes/a", "az://lakes/a"),
    ],
)
def test_spark_finds_what_the_server_names(told: str, reached: str | None, location: str, found: str) -> None:
    assert Root(told, reached).at(location) == found


def test_a_name_is_no_pattern() -> None:
    assert escaped("file:/a{b}[c]*?\\d") == r"file:/a\{b\}\[c\]\*\?\\d"
    assert escaped("s3a://lake/a b%20/c") == "s3a://lake/a b%20/c"


def test_a_position_comes_back_as_it_was_and_one_of_another_release_is_refused() -> None:
    position = Position("2026-03-01", 5, 3, 7)
    assert Position.of(Document(NAME, 1, position.to_json()), full=False) == position
    assert Position.of(Document(NAME, 0, None), full=False) == Position()
    other = Document(NAME, 1, {**position.to_json(), "format": FORMAT + 1})
    with pytest.raises(InvalidRequest, match="lakepact project --full"):
        Position.of(other, full=False)
    assert Position.of(other, full=True) == position


def test_how_often_it_runs() -> None:
    assert [seconds("--every", text) for text in ("30s", "15m", "2h", "1d")] == [30, 900, 7_200, 86_400]
    for wrong in ("", "15", "m", "1.5h", "15 m"):
        with pytest.raises(InvalidRequest, match="15m"):
            seconds("--every", wrong)
    with pytest.raises(InvalidRequest, match="no pause"):
        project(every="0m")


def test_the_page_names_every_table(root: Path) -> None:
    text = (root / "docs" / "projections.md").read_text()
    assert [one.name for one in ALL if f"| `{one.name}` |" not in text] == []
