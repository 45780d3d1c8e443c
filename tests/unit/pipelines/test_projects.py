"""What a project's file may say, and which checkpoints count."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakepact import pipelines as dp
from lakepact.pipelines.projects.checkpoints import Generations
from lakepact.pipelines.projects.driver import failed
from lakepact.pipelines.projects.project import read_project


def project(folder: Path, text: str) -> Path:
    file = folder / "spark-pipeline.yml"
    file.write_text(text)
    return file


def test_a_project_as_spark_makes_it_is_in_the_lake(tmp_path: Path) -> None:
    found = read_project(project(tmp_path, "name: my shop\nstorage: file:///s\nlibraries: []\n"))
    assert (found.name, found.catalog, found.database, found.storage) == ("my-shop", "lake", "default", "file:///s")
    named = read_project(project(tmp_path, "name: x\nstorage: s\ncatalog: prod\nschema: sales\n"))
    assert (named.catalog, named.database) == ("prod", "sales")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("name: x\n", "it needs a name and a storage"),
        ("- a\n", "it needs a name and a storage"),
        ("a: [", "is no YAML"),
        ("name: x\nstorage: s\ndatabase: a.b\n", "namespaces of one level"),
        ("name: x\nstorage: s\nconfiguration:\n  a: 1\n", "names with texts"),
        ("name: x\nstorage: s\nconfiguration:\n  spark.sql.catalog.lake.uri: u\n", "sets spark.sql.catalog.lake.uri"),
        ("name: x\nstorage: s\nconfiguration:\n  spark.sql.defaultCatalog: u\n", "sets spark.sql.defaultCatalog"),
    ],
)
def test_a_project_that_cannot_be_run_in_a_transaction_says_why(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(dp.InvalidPipeline, match=why):
        read_project(project(tmp_path, text))


def test_another_catalog_may_be_configured(tmp_path: Path) -> None:
    text = "name: x\nstorage: s\nconfiguration:\n  spark.sql.catalog.lakeside: c\n"
    assert read_project(project(tmp_path, text)).configuration == {"spark.sql.catalog.lakeside": "c"}


def test_checkpoints_of_a_run_count_once_it_is_committed() -> None:
    none = Generations.from_json(None)
    assert none.begins_at("file:///s/") == "file:///s"
    first = Generations.from_json(none.after("t1"))
    assert first == Generations("t1", None)
    assert first.begins_at("file:///s") == "file:///s/_lakepact/t1"
    assert Generations.from_json(first.after("t2")) == Generations("t2", "t1")
    with pytest.raises(dp.RunFailed, match="format 9"):
        Generations.from_json({"format": 9})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("RESTException: Error occurred while processing POST request", (False, True)),
        ("org.apache.iceberg.exceptions.ServiceUnavailableException: held", (False, True)),
        ("CommitFailedException: shop.orders changed", (True, False)),
        ("AnalysisException: TABLE_OR_VIEW_NOT_FOUND", (False, False)),
    ],
)
def test_a_project_is_repeated_after_conflicts_and_outages_only(text: str, expected: tuple[bool, bool]) -> None:
    outcome = failed(text)
    assert (outcome.conflict, outcome.outage) == expected
    refused = failed(text, invalid=True)
    assert not refused.conflict and not refused.outage
