"""A project's file: read, and judged before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lakepact.errors import InvalidSetting
from lakepact.pipelines.errors import InvalidPipeline
from lakepact.pipelines.loading import pipeline_name
from lakepact.spark.settings import DEFAULT_CATALOG, PREFIX

DEFAULT_DATABASE: Final = "default"
_DEFAULT_CATALOG_SETTING: Final = "spark.sql.defaultCatalog"


@dataclass(frozen=True, slots=True)
class Project:
    file: Path
    name: str
    storage: str
    """Where Spark keeps the checkpoints of streams."""

    catalog: str
    """The name under which the lake is known to the project."""

    database: str
    configuration: Mapping[str, str]


def read_project(file: Path) -> Project:
    """Raises `InvalidPipeline`. Only what is needed here is looked at: Spark itself reads the file again."""
    try:
        import yaml  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise InvalidSetting("a spark-pipeline.yml needs PyYAML: pip install 'pyspark[pipelines]'") from None
    try:
        found: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidPipeline(f"{file} cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise InvalidPipeline(f"{file} is no YAML: {error}") from None
    if not isinstance(found, dict) or not all(isinstance(found.get(key), str) for key in ("name", "storage")):
        raise InvalidPipeline(
            f"{file} is no project of Spark Declarative Pipelines: it needs a name and a storage, as "
            f"`spark-pipelines init` writes them"
        )
    configuration = found.get("configuration") or {}
    if not isinstance(configuration, dict) or not all(isinstance(one, str) for one in configuration.values()):
        raise InvalidPipeline(f"{file}: configuration is a list of names with texts")
    catalog = str(found.get("catalog") or DEFAULT_CATALOG)
    database = str(found.get("database") or found.get("schema") or DEFAULT_DATABASE)
    if "." in database:
        raise InvalidPipeline(f"{file}: database is {database}, and Spark takes namespaces of one level only here")
    _check_configuration(file, configuration, catalog)
    return Project(file.resolve(), pipeline_name(found["name"]), found["storage"], catalog, database, configuration)


def _check_configuration(file: Path, configuration: Mapping[str, str], catalog: str) -> None:
    """A project that puts its catalog somewhere else would write outside of the transaction."""
    own = PREFIX + catalog
    for key in configuration:
        if key in (own, _DEFAULT_CATALOG_SETTING) or key.startswith(own + "."):
            raise InvalidPipeline(
                f"{file}: configuration sets {key}, and where catalog {catalog} is, is what `lakepact run` decides "
                f"(--uri, --warehouse). Take it out; other catalogs may be configured, and are outside of the run"
            )
