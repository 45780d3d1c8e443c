"""From a file to a pipeline: it is executed, and what it declares is collected."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path

from lakepact.errors import LakepactError
from lakepact.pipelines.context import declaring
from lakepact.pipelines.definition import Pipeline
from lakepact.pipelines.errors import InvalidPipeline
from lakepact.pipelines.placeholder import placeholders


def load(path: str | Path, params: Mapping[str, str] | None = None) -> Pipeline:
    """The pipeline of this file. Modules beside it can be imported while it is executed, and later by its stages."""
    file = Path(path)
    if not file.is_file():
        raise InvalidPipeline(f"there is no file {path}")
    if file.suffix != ".py":
        raise InvalidPipeline(
            f"{path} is no Python file. A pipeline is declared in Python: see docs/pipelines.md. A project of Spark "
            f"Declarative Pipelines (spark-pipeline.yml) is run with `lakepact run`, and Spark alone knows its graph"
        )
    pipeline = Pipeline(pipeline_name(file.stem))
    # A name of its own: the file may be called like a module that is installed.
    module_name = f"lakepact_pipeline_{file.stem}"
    spec = importlib.util.spec_from_file_location(module_name, file.resolve())
    if spec is None or spec.loader is None:
        raise InvalidPipeline(f"{path} cannot be loaded as a Python module")
    module = importlib.util.module_from_spec(spec)
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    sys.modules[module_name] = module
    try:
        with declaring(pipeline, params or {}), placeholders():
            spec.loader.exec_module(module)
    except LakepactError:
        raise
    except Exception as error:
        raise InvalidPipeline(f"{path} failed while it was loaded: {type(error).__name__}: {error}") from error
    return pipeline


def pipeline_name(stem: str) -> str:
    """What a pipeline is called whose file, or project, is called so."""
    return "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "-" for letter in stem)
