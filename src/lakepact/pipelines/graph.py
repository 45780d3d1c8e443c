"""The graph of a pipeline, worked out from its declarations. Pure: nothing is read, nothing runs.

Datasets are the nodes: all flows into one table are one step, so whoever reads it reads it complete. What is not
declared here is external, and has to be there when the run begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from lakepact.pipelines.declared import Dataset, Flow
from lakepact.pipelines.errors import InvalidPipeline
from lakepact.pipelines.expectations import Check, Function, References
from lakepact.pipelines.inputs import parameters_of

_MOST_DATASETS: Final = 500


@dataclass(frozen=True, slots=True)
class Step:
    """One dataset with all that fills it, names in full."""

    name: str
    dataset: Dataset
    flows: tuple[Flow, ...]
    """With their inputs and parameters by the full names."""

    reads: tuple[str, ...]
    """Every input of every flow, itself left out."""

    reads_itself: bool

    @property
    def can_read_itself(self) -> bool:
        """Whether its query may read what the table was before the run."""
        return not self.dataset.is_view and len(self.flows) == 1 and self.dataset.mode != "create_or_replace"

    @property
    def local_checks(self) -> tuple[Check, ...]:
        """Those that need nothing but this dataset."""
        return tuple(check for check in self.dataset.checks if not _others(check))

    @property
    def cross_checks(self) -> tuple[Check, ...]:
        """Those between tables: they wait until everything is staged."""
        return tuple(check for check in self.dataset.checks if _others(check))


@dataclass(frozen=True, slots=True)
class Graph:
    steps: Mapping[str, Step]
    """In an order in which they can run."""

    levels: tuple[tuple[str, ...], ...]
    """What is in one level needs nothing of the same level."""

    externals: tuple[str, ...]
    """Tables that are read and not declared here."""

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(step.name for step in self.steps.values() if not step.dataset.is_view)

    def only(self, names: Iterable[str], namespace: str | None = None) -> Graph:
        """The part that makes these, with the views they need. Other tables are read as they are."""
        chosen: set[str] = set()
        waiting = [_declared_as(name, self.steps, namespace) for name in names]
        while waiting:
            name = waiting.pop()
            if name not in chosen:
                chosen.add(name)
                waiting += [
                    one for one in self.steps[name].reads if one in self.steps and self.steps[one].dataset.is_view
                ]
        return _graph({name: step for name, step in self.steps.items() if name in chosen})

    def left_out_of(self, part: Graph) -> dict[str, set[str]]:
        """What else is made of the views of a part, without being in it, by view."""
        views = [name for name, step in part.steps.items() if step.dataset.is_view]
        missing = {view: {name for name in self.made_of(view) if name not in part.steps} for view in views}
        return {view: names for view, names in missing.items() if names}

    def made_of(self, view: str) -> set[str]:
        """The tables that are made of a view, also through other views."""
        below, made = [view], set[str]()
        while below:
            one = below.pop()
            for name, step in self.steps.items():
                if one in step.reads and name not in made:
                    made.add(name)
                    below += [name] if step.dataset.is_view else []
        return {name for name in made if not self.steps[name].dataset.is_view}

    def with_input(self, name: str, read: str) -> Graph:
        """The same graph with one more edge: `name` reads `read`. Raises `InvalidPipeline` if that closes a circle."""
        step = self.steps[name]
        reads = tuple(dict.fromkeys((*step.reads, read)))
        return _graph({**self.steps, name: replace(step, reads=reads)})

    def renamed(self, names: Mapping[str, str]) -> Graph:
        """The same graph with other names for external inputs."""

        def new(name: str) -> str:
            return names.get(name, name)

        def flow(one: Flow) -> Flow:
            parameters = {parameter: new(name) for parameter, name in one.parameters.items()}
            return replace(one, inputs=tuple(map(new, one.inputs)), parameters=parameters)

        def check(one: Check) -> Check:
            if isinstance(one, References):
                return replace(one, table=new(one.table))
            if isinstance(one, Function):
                return replace(one, others=tuple((parameter, new(name)) for parameter, name in one.others))
            return one

        return _graph(
            {
                name: replace(
                    step,
                    dataset=replace(step.dataset, checks=tuple(map(check, step.dataset.checks))),
                    flows=tuple(map(flow, step.flows)),
                    reads=tuple(map(new, step.reads)),
                )
                for name, step in self.steps.items()
            }
        )

    def ready(self, done: Iterable[str], begun: Iterable[str]) -> tuple[str, ...]:
        """What can begin now."""
        finished, started = set(done), set(begun)
        return tuple(
            name
            for name, step in self.steps.items()
            if name not in started and all(one in finished for one in step.reads if one in self.steps)
        )


def build(
    datasets: Sequence[Dataset],
    flows: Sequence[Flow],
    namespace: str | None = None,
    checks: Sequence[tuple[str, Check]] = (),
) -> Graph:
    """The graph of these declarations; `checks` are those declared apart from their table.

    Raises `InvalidPipeline` for whatever cannot run.
    """
    if len(datasets) > _MOST_DATASETS:
        raise InvalidPipeline(f"{len(datasets)} tables are too many for one run; {_MOST_DATASETS} is the most")
    named = _named(datasets, namespace)
    for target, check in checks:
        name = _full(target, named, namespace)
        if name not in named:
            raise InvalidPipeline(f"check {check.name} is of {name}, which is not declared here")
        named[name] = replace(named[name], checks=(*named[name].checks, check))
    by_target: dict[str, list[Flow]] = {name: [] for name in named}
    for flow in flows:
        target = _full(flow.target, named, namespace)
        if target not in named:
            raise InvalidPipeline(
                f"{flow.where}: flow {flow.name} appends to {target}, which is not declared here. Declare it with "
                f"@dp.table or dp.create_streaming_table({flow.target!r})"
            )
        by_target[target].append(_resolved(flow, target, named, namespace))
    steps = {name: _step(name, dataset, by_target[name], named, namespace) for name, dataset in named.items()}
    return _graph(steps)


def _named(datasets: Sequence[Dataset], namespace: str | None) -> dict[str, Dataset]:
    named: dict[str, Dataset] = {}
    for dataset in datasets:
        name = dataset.name
        if not dataset.is_view and "." not in name:
            if namespace is None:
                raise InvalidPipeline(
                    f"{dataset.where}: {name} has no namespace. Write name='sales.{name}', or give the pipeline one: "
                    f"dp.pipeline(namespace='sales')"
                )
            name = f"{namespace}.{name}"
        if name in named:
            raise InvalidPipeline(
                f"{name} is declared twice, at {named[name].where} and at {dataset.where}. To fill one table from two "
                f"queries, use @dp.append_flow(target={name!r}) for the second"
            )
        named[name] = dataset
    return named


def _step(name: str, dataset: Dataset, flows: list[Flow], named: Mapping[str, Dataset], namespace: str | None) -> Step:
    if not flows:
        raise InvalidPipeline(f"{dataset.where}: nothing fills {name}. Add @dp.append_flow(target={name!r})")
    reads = tuple(dict.fromkeys(one for flow in flows for one in flow.inputs))
    itself = name in reads
    checks = tuple(_resolved_check(check, name, dataset.where, named, namespace) for check in dataset.checks)
    step = Step(name, replace(dataset, checks=checks), tuple(flows), tuple(one for one in reads if one != name), itself)
    if itself and not step.can_read_itself:
        raise InvalidPipeline(made_of_itself(step))
    return step


def made_of_itself(step: Step) -> str:
    name = step.name
    return (
        f"{step.dataset.where}: {name} is made of itself: {name} → {name}. Only a table with one flow, which is added "
        f"to or merged into, can read what it was before"
    )


def _resolved(flow: Flow, target: str, named: Mapping[str, Dataset], namespace: str | None) -> Flow:
    parameters = {
        parameter: _of_parameter(parameter, given, flow, named, namespace)
        for parameter, given in flow.parameters.items()
    }
    inputs = (*(_full(one, named, namespace) for one in flow.inputs), *parameters.values())
    bare = [one for one in inputs if "." not in one and one not in named]
    if bare:
        raise InvalidPipeline(
            f"{flow.where}: {flow.name} reads {bare[0]}, which is not declared here and has no namespace. Write "
            f"'sales.{bare[0]}', or give the pipeline a namespace: dp.pipeline(namespace='sales')"
        )
    return replace(flow, target=target, inputs=tuple(dict.fromkeys(inputs)), parameters=parameters)


def _resolved_check(
    check: Check, target: str, where: str, named: Mapping[str, Dataset], namespace: str | None
) -> Check:
    if isinstance(check, References):
        return replace(check, table=_full(check.table, named, namespace))
    if isinstance(check, Function):
        flow = Flow(check.name, "", where, inputs=(target,))
        takes = {one: _of_parameter(one, "", flow, named, namespace) for one in parameters_of(check.function)}
        own = tuple(parameter for parameter, name in takes.items() if name == target)
        bare = [name for name in takes.values() if "." not in name and name not in named]
        if bare:
            raise InvalidPipeline(
                f"{where}: check {check.name} of {target} has a parameter {bare[0]}, which is no dataset of this "
                f"pipeline. Parameters are bound by name, as those of stages are: call it {target.rpartition('.')[2]}"
            )
        others = tuple((parameter, name) for parameter, name in takes.items() if name != target)
        return replace(check, own=own, others=others)
    return check


def _of_parameter(parameter: str, given: str, flow: Flow, named: Mapping[str, Dataset], namespace: str | None) -> str:
    """What a parameter of this name takes: an input that ends with it, or a declared dataset that does."""
    if given:
        return _full(given, named, namespace)
    listed = [one for one in flow.inputs if one.rpartition(".")[2] == parameter]
    declared = [one for one in named if one.rpartition(".")[2] == parameter]
    own = [one for one in declared if one in (parameter, f"{namespace}.{parameter}")]
    for found in (listed, own, declared):
        if len(found) == 1:
            return _full(found[0], named, namespace)
        if found:
            raise InvalidPipeline(
                f"{flow.where}: parameter {parameter} of {flow.name} may be {' or '.join(found)}. Say which: "
                f"inputs={{{parameter!r}: {found[0]!r}}}"
            )
    return _full(parameter, named, namespace)


def _full(name: str, named: Mapping[str, Dataset], namespace: str | None) -> str:
    if "." in name or name in named or namespace is None:
        return name
    return f"{namespace}.{name}"


def _declared_as(name: str, steps: Mapping[str, Step], namespace: str | None) -> str:
    for found in (name, f"{namespace}.{name}"):
        if found in steps:
            return found
    raise InvalidPipeline(f"there is no {name} in this pipeline. It declares {', '.join(steps)}")


def _graph(steps: Mapping[str, Step]) -> Graph:
    levels: dict[str, int] = {}
    for name in steps:
        _level(name, steps, levels, ())
    ordered = sorted(steps, key=lambda name: levels[name])
    width = max(levels.values(), default=-1) + 1
    referenced = [one for step in steps.values() for check in step.dataset.checks for one in _others(check)]
    read = [one for step in steps.values() for one in step.reads]
    return Graph(
        {name: steps[name] for name in ordered},
        tuple(tuple(name for name in ordered if levels[name] == level) for level in range(width)),
        tuple(dict.fromkeys(one for one in (*read, *referenced) if one not in steps)),
    )


def _level(name: str, steps: Mapping[str, Step], levels: dict[str, int], path: tuple[str, ...]) -> int:
    if name in path:
        circle = (*path[path.index(name) :], name)
        raise InvalidPipeline(
            f"{steps[name].dataset.where}: these are made of each other: {' → '.join(circle)}. Take one input out"
        )
    if name not in levels:
        below = [_level(one, steps, levels, (*path, name)) for one in steps[name].reads if one in steps]
        levels[name] = max(below, default=-1) + 1
    return levels[name]


def _others(check: Check) -> tuple[str, ...]:
    """The datasets a check looks at beside its own."""
    match check:
        case References():
            return (check.table,)
        case Function():
            return tuple(name for _, name in check.others)
        case _:
            return ()
