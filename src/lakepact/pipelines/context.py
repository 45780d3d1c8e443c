"""What is going on in this thread: which pipeline is being declared, with which parameters, and which stage is running.

Declarations and stages are plain functions that know nothing of a run. They find it here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from lakepact.pipelines.errors import InvalidPipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakepact.pipelines.definition import Pipeline

T = TypeVar("T")

_MISSING: Final = object()
_OF_MODULE: Final = "__lakepact_pipeline__"


class Reader(Protocol):
    """What a running stage reads through."""

    def read(self, name: str) -> DataFrame:
        """An input as the run sees it: what earlier stages have staged, everything else as of one instant."""
        ...

    def read_new(self, name: str, *, skip_changes: bool) -> DataFrame:
        """What was added to an input since the last committed run."""
        ...

    @property
    def session(self) -> SparkSession:
        """The session of the stage, inside the run's transaction."""
        ...

    def require(self, names: Iterable[str], *, tables: bool) -> None:
        """Raise `UndeclaredInput` if one of these names is a dataset of this run that is not complete yet.

        Without `tables` only temporary views of the run are looked at.
        """
        ...

    def observe(self, frame: DataFrame) -> DataFrame:
        """Record what the frame reads. Raises `UndeclaredInput` or `StaleRead`; see `stage.StageReader`."""
        ...


_pipeline: ContextVar[Pipeline | None] = ContextVar("lakepact_pipeline", default=None)
_parameters: ContextVar[Mapping[str, str]] = ContextVar("lakepact_parameters", default={})  # noqa: B039 - never changed
_reader: ContextVar[Reader | None] = ContextVar("lakepact_reader", default=None)


@contextmanager
def declaring(pipeline: Pipeline, parameters: Mapping[str, str] | None = None) -> Iterator[None]:
    """Declarations of this block belong to this pipeline."""
    pipeline_token = _pipeline.set(pipeline)
    parameters_token = _parameters.set(dict(parameters or _parameters.get()))
    try:
        yield
    finally:
        _pipeline.reset(pipeline_token)
        _parameters.reset(parameters_token)


@contextmanager
def running(reader: Reader, parameters: Mapping[str, str]) -> Iterator[None]:
    """Functions called in this block are stages that read through this reader."""
    reader_token, parameters_token = _reader.set(reader), _parameters.set(parameters)
    try:
        yield
    finally:
        _reader.reset(reader_token)
        _parameters.reset(parameters_token)


def current_pipeline() -> Pipeline:
    """The pipeline that is being declared.

    A file that a test imports like any other module declares a pipeline of its own: `declared_in(module)`. At a prompt
    and in a program's main file nobody would find it, so there it is an error.
    """
    found = _pipeline.get() or _pipeline_of_import()
    if found is None:
        raise InvalidPipeline(
            "no pipeline is being declared. Run the file with `lakepact run`, or declare inside "
            "`with dp.Pipeline('name') as pipeline:`"
        )
    return found


def declared_in(module: ModuleType) -> Pipeline:
    """The pipeline that an imported module declares."""
    found = module.__dict__.get(_OF_MODULE)
    if found is None:
        raise InvalidPipeline(f"module {module.__name__} declares nothing: it has no @dp.table and the like")
    pipeline: Pipeline = found
    return pipeline


def _pipeline_of_import() -> Pipeline | None:
    """The pipeline of the module that is being imported, if it is one that makes declarations."""
    from lakepact.pipelines.definition import Pipeline

    package = __name__.rpartition(".")[0]
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith(package):
        frame = frame.f_back
    if frame is None:
        return None
    module, name = frame.f_globals, str(frame.f_globals.get("__name__", "__main__"))
    spec = module.get("__spec__")
    if name == "__main__" or spec is None or not getattr(spec, "_initializing", False):
        return None
    if _OF_MODULE not in module:
        module[_OF_MODULE] = Pipeline(name.rpartition(".")[2])
    found: Pipeline = module[_OF_MODULE]
    return found


def read(name: str) -> DataFrame:
    """An input of the stage that is running, as the run sees it."""
    return _running().read(name)


def read_new(name: str, *, skip_changes: bool = False) -> DataFrame:
    """The rows that were added to an input since the last committed run of this stage; all of them at the first.

    An input that was changed otherwise than by adding rows is an error, unless `skip_changes` says that changes and
    deletions do not matter here. Where the stage has stopped is committed together with its outputs.
    """
    return _running().read_new(name, skip_changes=skip_changes)


def param(name: str, default: T | object = _MISSING) -> Any:
    """A parameter of the run (`--param name=value`). It gets the type of its default; without one it must be given."""
    given = _parameters.get().get(name)
    if given is None:
        if default is _MISSING:
            raise InvalidPipeline(f"the pipeline needs a parameter: --param {name}=...")
        return default
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[given.lower()]
        return type(default)(given) if isinstance(default, int | float) else given
    except (ValueError, KeyError):
        raise InvalidPipeline(f"parameter {name} is {type(default).__name__}, not {given!r}") from None


def current_reader() -> Reader | None:
    """The reader of the stage whose function is called in this thread. None outside of such functions."""
    return _reader.get()


def _running() -> Reader:
    found = _reader.get()
    if found is None:
        raise InvalidPipeline("no stage is running: dp.read and dp.read_new belong into the function of a stage")
    return found
