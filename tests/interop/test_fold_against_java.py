"""What updates do to metadata, by us and by Iceberg's own library: the same, for whatever is sent in whatever order.

`LAKEPACT_FOLD_SEED=7` replays the run of that seed; a failure names its seed and shows the smallest story that fails.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from lakepact.iceberg import metadata, names, updates, views
from lakepact.iceberg.draft import Context
from lakepact.iceberg.errors import InvalidIceberg, StaleUpdate
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.finish import Applied
from lakepact.iceberg.parse import parse_table_updates, parse_view_updates
from lakepact.iceberg.requests import parse_create_table
from tests.interop import creations
from tests.interop.comparison import VERDICTS, verdict
from tests.interop.oracle import Answer, Oracle, running_oracle
from tests.property.iceberg.moves import requests_for
from tests.property.iceberg.strategies import view_updates
from tests.support import jars
from tests.unit.iceberg.tables import BORN_MS, LOCATION, NOW_MS, UUID, create
from tests.unit.iceberg.test_views import create as create_view

NAME: Final = Path(__file__).name
LONG: Final = bool(os.environ.get("LAKEPACT_LONG"))
LENGTH: Final = 10 if LONG else 1
# Always the same in `make test`, so that it says the same of the same code; ever new in `make verify`.
SEED: Final = int(os.environ.get("LAKEPACT_FOLD_SEED") or (secrets.randbelow(10**9) if LONG else 1))


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    with running_oracle() as running:
        yield running


def told(stories: int, test: Callable[[st.DataObject], None]) -> None:
    """Run a test over this many stories, from the seed."""
    limits = settings(
        max_examples=stories * LENGTH,
        deadline=None,
        database=None,  # an example kept from elsewhere would make the seed a lie
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    try:
        seed(SEED)(limits(given(st.data())(test)))()
    except BaseException as error:
        long = "LAKEPACT_LONG=1 " if LONG else ""
        error.add_note(f"replay: {long}LAKEPACT_FOLD_SEED={SEED} make pytest PYTEST_ARGS=tests/interop/{NAME}")
        raise


def answer(make: Callable[..., Applied | JsonObject], *arguments: object) -> Answer:
    """What we make of it, in the form of Java's answers."""
    try:
        made = make(*arguments)
    except InvalidIceberg as error:
        return Answer(error=str(error) or type(error).__name__)
    except StaleUpdate as error:
        return Answer(error=str(error), stale=True)
    return Answer(made.metadata, made.changed) if isinstance(made, Applied) else Answer(made, changed=True)


def updated_table(base: JsonObject | None, request: list[JsonObject], context: Context) -> Applied:
    return updates.apply(base, parse_table_updates(request), context)


def created_table(request: JsonObject) -> JsonObject:
    asked = parse_create_table(request)
    return metadata.create_metadata(
        schema=asked.schema,
        spec=asked.spec,
        order=asked.order,
        properties=asked.properties,
        location=asked.location or "",
        uuid=UUID,
        now_ms=BORN_MS,
    )


def updated_view(base: JsonObject, request: list[JsonObject], now_ms: int) -> Applied:
    return views.apply_to_view(base, parse_view_updates(request), now_ms)


def known_to_java(request: list[JsonObject]) -> list[JsonObject]:
    """Return the request without what the two libraries treat differently on purpose, so that ids do not drift apart.

    Schemas that differ in a field that Java does not know are two to us, and one to Java. A snapshot without a sequence
    number gets the table's next one from us, and 0 from Java.
    """
    return [_known_to_java(update) for update in request]


def _known_to_java(update: JsonObject) -> JsonObject:
    if update["action"] == names.ADD_SCHEMA:
        schema = {key: value for key, value in update["schema"].items() if not key.startswith("x-")}
        return {**update, "schema": schema}
    if update["action"] == names.ADD_SNAPSHOT:
        return {**update, "snapshot": {"sequence-number": 0, **update["snapshot"]}}
    return update


def figure(what: str, verdicts: Counter[str]) -> str:
    counted = ", ".join(f"{verdicts[one]} {one}" for one in VERDICTS)
    return f"{what} against Java {jars.ICEBERG}, seed {SEED}: {verdicts.total()} requests, {counted}"


@pytest.mark.timeout(1800)
def test_a_table_under_any_updates_is_what_java_makes_of_it(
    oracle: Oracle, record_property: Callable[[str, object], None]
) -> None:
    verdicts: Counter[str] = Counter()

    def story(data: st.DataObject) -> None:
        base = create(data.draw(st.integers(1, 3), "format"))
        for number in range(data.draw(st.integers(1, 7), "length")):
            now_ms = BORN_MS + 1_000 * (number + 1)
            request = known_to_java(data.draw(requests_for(base, now_ms), "request"))
            previous = f"{LOCATION}/metadata/{number:05d}-a.metadata.json"
            ours = answer(updated_table, base, request, Context(now_ms, previous))
            java = oracle.ask("table", base=base, previous=previous, updates=request)
            verdicts[verdict(base, request, ours, java)] += 1
            base = ours.result or base

    told(600, story)
    record_property("figure", figure("updates of tables", verdicts))
    assert verdicts["the same"] > verdicts.total() / 2, verdicts


@pytest.mark.timeout(1800)
def test_a_table_that_is_created_by_updates_is_what_java_makes_of_it(
    oracle: Oracle, record_property: Callable[[str, object], None]
) -> None:
    verdicts: Counter[str] = Counter()

    def story(data: st.DataObject) -> None:
        request = data.draw(creations.updates())
        ours = answer(updated_table, None, request, Context(NOW_MS))
        verdicts[verdict(None, request, ours, oracle.ask("table", updates=request))] += 1

    told(300, story)
    record_property("figure", figure("creations by updates", verdicts))
    assert verdicts["the same"] > verdicts.total() / 8, verdicts


@pytest.mark.timeout(1800)
def test_a_table_that_is_created_by_request_is_what_java_makes_of_it(
    oracle: Oracle, record_property: Callable[[str, object], None]
) -> None:
    verdicts: Counter[str] = Counter()

    def story(data: st.DataObject) -> None:
        request = data.draw(creations.requests())
        verdicts[verdict(None, [], answer(created_table, request), oracle.ask("create", request=request))] += 1

    told(300, story)
    record_property("figure", figure("creations by request", verdicts))
    assert verdicts["the same"] > verdicts.total() / 8, verdicts


@pytest.mark.timeout(1800)
def test_a_view_under_any_updates_is_what_java_makes_of_it(
    oracle: Oracle, record_property: Callable[[str, object], None]
) -> None:
    verdicts: Counter[str] = Counter()

    def story(data: st.DataObject) -> None:
        base = create_view()
        for number in range(data.draw(st.integers(1, 6), "length")):
            request = known_to_java(data.draw(st.lists(view_updates, min_size=1, max_size=4), "request"))
            ours = answer(updated_view, base, request, NOW_MS + number)
            verdicts[verdict(base, request, ours, oracle.ask("view", base=base, updates=request))] += 1
            base = ours.result or base

    told(300, story)
    record_property("figure", figure("updates of views", verdicts))
    assert verdicts["the same"] > verdicts.total() / 8, verdicts
