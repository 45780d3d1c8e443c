"""The decorators that declare datasets and flows, by the names and with the arguments of `pyspark.pipelines`.

    @dp.table                      a table that is added to, unless `mode` says otherwise
    @dp.materialized_view          a table that is computed anew by every run
    @dp.temporary_view             a query with a name, for the stages of the run
    @dp.append_flow(target="x")    one more query that adds to a table
    dp.create_streaming_table      a table that is filled by flows only

On top of it: `inputs`, `mode`, `keys`, `sql`, `expectations`. A decorated function stays what it was.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, overload

from lakepact.pipelines.context import current_pipeline
from lakepact.pipelines.declared import MODES, Dataset, Flow, Isolation, Kind, Mode
from lakepact.pipelines.errors import InvalidPipeline
from lakepact.pipelines.expectations import Check
from lakepact.pipelines.expecting import CHECKS, DECLARED, Expectation
from lakepact.pipelines.inputs import found_in, parameters_of
from lakepact.pipelines.sqltables import tables_in

F = TypeVar("F", bound=Callable[..., Any])
Inputs: TypeAlias = Sequence[str] | Mapping[str, str] | None


def pipeline(
    name: str | None = None,
    *,
    namespace: str | None = None,
    isolation: Isolation | None = None,
    parallel: int | None = None,
    attempts: int | None = None,
    samples: bool | None = None,
) -> None:
    """What holds for the whole file: its name (the file's, unless given), the namespace of tables that name none, the
    isolation of a run, how many stages run side by side, how often a run is tried when others are faster, and whether
    reports of runs hold some of the rows that a check found wanting."""
    current_pipeline().configure(
        name, namespace=namespace, isolation=isolation, parallel=parallel, attempts=attempts, samples=samples
    )


@overload
def table(query_function: F) -> F: ...
@overload
def table(
    query_function: None = None,
    *,
    name: str | None = None,
    sql: str | None = None,
    inputs: Inputs = None,
    mode: Mode = "append",
    keys: Sequence[str] = (),
    comment: str | None = None,
    spark_conf: Mapping[str, str] | None = None,
    table_properties: Mapping[str, str] | None = None,
    partition_cols: Sequence[str] | None = None,
    cluster_by: Sequence[str] | None = None,
    schema: Any = None,
    format: str | None = None,
    expectations: Sequence[Expectation] = (),
) -> Callable[[F], F]: ...
def table(
    query_function: Any = None,
    *,
    name: str | None = None,
    sql: str | None = None,
    inputs: Inputs = None,
    mode: Mode = "append",
    keys: Sequence[str] = (),
    comment: str | None = None,
    spark_conf: Mapping[str, str] | None = None,
    table_properties: Mapping[str, str] | None = None,
    partition_cols: Sequence[str] | None = None,
    cluster_by: Sequence[str] | None = None,
    schema: Any = None,
    format: str | None = None,
    expectations: Sequence[Expectation] = (),
) -> Any:
    """A table, and the function or SQL that fills it. `mode` says how: append, overwrite, overwrite_partitions, merge
    (by `keys`) or create_or_replace."""
    _check_mode(mode, keys, name)

    def dataset(name: str, where: str, checks: tuple[Check, ...]) -> Dataset:
        _refuse_clusters(cluster_by, where)
        return Dataset(
            name=name,
            kind=Kind.TABLE,
            where=where,
            mode=mode,
            keys=tuple(keys),
            partition_cols=tuple(partition_cols or ()),
            properties=dict(table_properties or {}),
            format=format,
            schema=schema,
            comment=comment,
            checks=checks,
        )

    return _declaration(query_function, dataset, name, sql, inputs, spark_conf, expectations)


@overload
def materialized_view(query_function: F) -> F: ...
@overload
def materialized_view(
    query_function: None = None,
    *,
    name: str | None = None,
    sql: str | None = None,
    inputs: Inputs = None,
    comment: str | None = None,
    spark_conf: Mapping[str, str] | None = None,
    table_properties: Mapping[str, str] | None = None,
    partition_cols: Sequence[str] | None = None,
    cluster_by: Sequence[str] | None = None,
    schema: Any = None,
    format: str | None = None,
    expectations: Sequence[Expectation] = (),
) -> Callable[[F], F]: ...
def materialized_view(
    query_function: Any = None,
    *,
    name: str | None = None,
    sql: str | None = None,
    inputs: Inputs = None,
    comment: str | None = None,
    spark_conf: Mapping[str, str] | None = None,
    table_properties: Mapping[str, str] | None = None,
    partition_cols: Sequence[str] | None = None,
    cluster_by: Sequence[str] | None = None,
    schema: Any = None,
    format: str | None = None,
    expectations: Sequence[Expectation] = (),
) -> Any:
    """A table whose content is what its query says, computed anew by every run. Its older snapshots stay readable."""

    def dataset(name: str, where: str, checks: tuple[Check, ...]) -> Dataset:
        _refuse_clusters(cluster_by, where)
        return Dataset(
            name=name,
            kind=Kind.MATERIALIZED_VIEW,
            where=where,
            mode="create_or_replace",
            partition_cols=tuple(partition_cols or ()),
            properties=dict(table_properties or {}),
            format=format,
            schema=schema,
            comment=comment,
            checks=checks,
        )

    return _declaration(query_function, dataset, name, sql, inputs, spark_conf, expectations)


@overload
def temporary_view(query_function: F) -> F: ...
@overload
def temporary_view(
    query_function: None = None,
    *,
    name: str | None = None,
    sql: str | None = None,
    inputs: Inputs = None,
    comment: str | None = None,
    spark_conf: Mapping[str, str] | None = None,
    expectations: Sequence[Expectation] = (),
) -> Callable[[F], F]: ...
def temporary_view(
    query_function: Any = None,
    *,
    name: str | None = None,
    sql: str | None = None,
    inputs: Inputs = None,
    comment: str | None = None,
    spark_conf: Mapping[str, str] | None = None,
    expectations: Sequence[Expectation] = (),
) -> Any:
    """A query with a name. It is there while the run lasts, computed where it is used, and never published."""

    def dataset(name: str, where: str, checks: tuple[Check, ...]) -> Dataset:
        if "." in name:
            raise InvalidPipeline(f"{where}: a temporary view has no namespace; call it {name.rpartition('.')[2]!r}")
        if spark_conf:
            raise InvalidPipeline(f"{where}: a view is computed where it is used; give spark_conf to the tables there")
        return Dataset(name=name, kind=Kind.TEMPORARY_VIEW, where=where, comment=comment, checks=checks)

    return _declaration(query_function, dataset, name, sql, inputs, spark_conf, expectations)


def create_streaming_table(
    name: str,
    *,
    comment: str | None = None,
    table_properties: Mapping[str, str] | None = None,
    partition_cols: Sequence[str] | None = None,
    cluster_by: Sequence[str] | None = None,
    schema: Any = None,
    format: str | None = None,
    expectations: Sequence[Expectation] = (),
) -> None:
    """A table that is filled by `append_flow`s only."""
    where = _caller()
    _refuse_clusters(cluster_by, where)
    dataset = Dataset(
        name=name,
        kind=Kind.TABLE,
        where=where,
        partition_cols=tuple(partition_cols or ()),
        properties=dict(table_properties or {}),
        format=format,
        schema=schema,
        comment=comment,
        checks=_flat(expectations),
    )
    current_pipeline().add(dataset, None)


def append_flow(
    *,
    target: str,
    name: str | None = None,
    inputs: Inputs = None,
    spark_conf: Mapping[str, str] | None = None,
) -> Callable[[F], F]:
    """One more query whose rows are added to a table."""

    def declared(function: F) -> F:
        flow = _flow(name or function.__name__, target, _where(function), function, None, inputs, spark_conf)
        current_pipeline().add(None, flow)
        return function

    return declared


def _declaration(
    function: Any,
    dataset: Callable[[str, str, tuple[Check, ...]], Dataset],
    name: str | None,
    sql: str | None,
    inputs: Inputs,
    spark_conf: Mapping[str, str] | None,
    expectations: Sequence[Expectation],
) -> Any:
    def declared(function: F) -> F:
        found, where = name or function.__name__, _where(function)
        checks = (*_flat(expectations), *getattr(function, CHECKS, ()))
        flow = _flow(found, found, where, function, None, inputs, spark_conf)
        pipeline = current_pipeline()
        pipeline.add(dataset(found, where, checks), flow)
        setattr(function, DECLARED, (pipeline, found))
        return function

    if sql is not None:
        where = _caller(3)
        if name is None:
            raise InvalidPipeline(f"{where}: a table declared by SQL needs a name=")
        flow = _flow(name, name, where, None, sql, inputs, spark_conf)
        current_pipeline().add(dataset(name, where, _flat(expectations)), flow)
        return lambda function: function
    return declared if function is None else declared(function)


def _flow(
    name: str,
    target: str,
    where: str,
    function: Callable[..., Any] | None,
    sql: str | None,
    inputs: Inputs,
    spark_conf: Mapping[str, str] | None,
) -> Flow:
    given = dict(inputs) if isinstance(inputs, Mapping) else {}
    listed = tuple(given.values()) if given else tuple(inputs or ())
    parameters = {} if function is None else {one: given.get(one, "") for one in parameters_of(function)}
    found = tables_in(sql) if sql is not None else found_in(function) if function is not None else ()
    return Flow(
        name=name,
        target=target,
        where=where,
        function=function,
        sql=sql,
        inputs=tuple(dict.fromkeys((*listed, *found))),
        parameters=parameters,
        spark_conf=dict(spark_conf or {}),
    )


def _flat(expectations: Sequence[Expectation]) -> tuple[Check, ...]:
    return tuple(check for expectation in expectations for check in expectation.checks)


def _check_mode(mode: str, keys: Sequence[str], name: str | None) -> None:
    if mode not in MODES:
        raise InvalidPipeline(f"mode is one of {', '.join(MODES)}, not {mode!r}")
    if (mode == "merge") != bool(keys):
        wanted = "needs the keys to merge by: keys=['id']" if mode == "merge" else "takes no keys; they are for merge"
        raise InvalidPipeline(f"{name or 'table'}: mode {mode} {wanted}")


def _refuse_clusters(cluster_by: Sequence[str] | None, where: str) -> None:
    if cluster_by:
        raise InvalidPipeline(f"{where}: cluster_by is not supported; use partition_cols, such as ['bucket(16, id)']")


def _where(function: Callable[..., Any]) -> str:
    code = function.__code__
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}"


def _caller(depth: int = 2) -> str:
    frame = sys._getframe(depth)
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
