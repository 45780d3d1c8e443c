"""A runtime that does not fit is an error that names the right one, before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakepact.errors import InvalidSetting
from lakepact.spark.runtimes import RUNTIMES, check_loaded, jars_in, runtime_for
from tests.support import jars

ICEBERG = "iceberg-spark-runtime-4.1_2.13-1.12.0.jar"


def test_the_tests_run_with_the_runtimes_that_users_get() -> None:
    runtime = RUNTIMES[jars.SPARK_LINE.split("_")[0]]
    assert runtime.iceberg == str(jars.SPARK_ICEBERG[0])
    assert runtime.delta == str(jars.SPARK_DELTA[0])


def test_a_release_of_a_known_line_has_its_runtime() -> None:
    assert runtime_for("4.1.1") is RUNTIMES["4.1"]
    assert runtime_for("4.1.0.dev3") is RUNTIMES["4.1"]


@pytest.mark.parametrize("version", ["3.5.6", "4.0.1", "5.0.0"])
def test_another_spark_is_told_which_one_to_install(version: str) -> None:
    with pytest.raises(InvalidSetting, match=rf"Spark {version} is not supported.*pyspark==4\.1\.\*"):
        runtime_for(version)


def test_a_folder_of_jars_is_taken_as_it_is(tmp_path: Path) -> None:
    for name in (ICEBERG, "delta-storage-4.4.0.jar", "notes.txt"):
        (tmp_path / name).touch()
    assert [jar.name for jar in jars_in(tmp_path, RUNTIMES["4.1"])] == ["delta-storage-4.4.0.jar", ICEBERG]


def test_a_folder_without_the_runtime_is_told_what_to_put_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"iceberg-spark-runtime-4\.1_2\.13:1\.12\.0"):
        jars_in(tmp_path, RUNTIMES["4.1"])


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("iceberg-spark-runtime-3.5_2.12-1.10.2.jar", "iceberg-spark-runtime-4.1_2.13:1.12.0"),
        ("delta-spark_4.0_2.13-4.4.0.jar", "delta-spark_4.1_2.13:4.4.0"),
    ],
)
def test_a_jar_for_another_spark_is_told_which_one_is_right(tmp_path: Path, wrong: str, right: str) -> None:
    (tmp_path / ICEBERG).touch()
    (tmp_path / wrong).touch()
    with pytest.raises(InvalidSetting, match=f"{wrong} is for Spark .*{right}"):
        jars_in(tmp_path, RUNTIMES["4.1"])


def test_a_running_session_without_the_runtime_is_told_how_to_start() -> None:
    with pytest.raises(InvalidSetting, match=r"lakepact\.spark\.session.*spark\.jars\.packages=org\.apache\.iceberg"):
        check_loaded(None, "4.1.1")
    with pytest.raises(InvalidSetting, match=r"is for Spark 4\.0 .*Use org\.apache\.iceberg.*4\.1_2\.13"):
        check_loaded("iceberg-spark-runtime-4.0_2.13-1.11.0.jar", "4.1.1")
    check_loaded(ICEBERG, "4.1.1")
    check_loaded("", "4.1.1")
