"""Every pipeline that the documentation shows can be loaded, and its graph is sound. None of it needs Spark to run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lakepact import pipelines as dp
from lakepact.pipelines.placeholder import NeedsSession, Placeholder
from tests.conftest import ROOT

GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
# What is to be asked of the lake is asked in SQL.
PAGES = [ROOT / "docs" / "pipelines.md", *(page for page in GUIDES if page.stem != "questions")]


def shown(page: Path) -> list[str]:
    blocks: list[str] = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    return [block for block in blocks if "dp.pipeline(" in block]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_pipeline_on_a_page_is_sound(page: Path, tmp_path: Path) -> None:
    pipelines = shown(page)
    assert pipelines
    for number, text in enumerate(pipelines):
        file = tmp_path / f"shown_{number}.py"
        file.write_text(text)
        assert dp.load(file, {"folder": "landing"}).graph().tables


def test_the_example_is_sound() -> None:
    graph = dp.load(ROOT / "examples" / "incremental" / "pipeline.py").graph()
    assert graph.externals == ("shop_raw.orders", "shop_raw.customers")
    assert len(graph.levels) == 3


def test_a_file_with_a_session_at_its_top_is_loaded_without_spark(tmp_path: Path) -> None:
    file = tmp_path / "stock.py"
    file.write_text(
        "from pyspark.sql import SparkSession\n"
        "from lakepact import pipelines as dp\n"
        "spark = SparkSession.active()\n"
        "@dp.materialized_view(name='a.copies')\n"
        "def copies():\n"
        "    return spark.table('raw.orders')\n"
    )
    assert dp.load(file).graph().externals == ("raw.orders",)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1 / 0", "failed while it was loaded: ZeroDivisionError"),
        ("import lakepact.pipelines as dp\ndp.param('day')", "--param day="),
        ("import lakepact.pipelines as dp\ndp.param('days', 3)", "days is int, not 'x'"),
    ],
)
def test_a_file_that_cannot_be_loaded_says_why(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(text)
    with pytest.raises(dp.InvalidPipeline, match=re.escape(why)):
        dp.load(file, {"days": "x"})


def test_spark_cannot_be_asked_for_anything_before_it_is_there() -> None:
    with pytest.raises(NeedsSession, match="used while the file is loaded"):
        Placeholder().range(3)


def test_what_is_no_python_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(dp.InvalidPipeline, match="there is no file"):
        dp.load(tmp_path / "missing.py")
    (tmp_path / "spark-pipeline.yml").write_text("name: x")
    with pytest.raises(dp.InvalidPipeline, match="no Python file"):
        dp.load(tmp_path / "spark-pipeline.yml")
