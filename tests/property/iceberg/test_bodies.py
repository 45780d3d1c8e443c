"""Anything may arrive. What is wrong with it is always said, and never an error of ours."""

from __future__ import annotations

import contextlib
from copy import deepcopy
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from lakepact.iceberg import names, requests, updates
from lakepact.iceberg.draft import Context
from lakepact.iceberg.errors import InvalidIceberg, StaleUpdate
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.parse import parse_table_updates
from lakepact.iceberg.requests import parse_commit_table, parse_commit_transaction, parse_create_table
from lakepact.iceberg.validate import check_table_metadata
from tests.property.iceberg.strategies import json_values, schemas, table_updates
from tests.unit.iceberg.tables import NOW_MS, with_snapshots

TABLE = with_snapshots(3, 1, 2)
often = settings(max_examples=150, deadline=None)


@st.composite
def spoiled(draw: st.DrawFn, value: Any) -> Any:
    """The value with something else somewhere in it."""
    if isinstance(value, dict) and value and draw(st.integers(0, 3)):
        name = draw(st.sampled_from(sorted(value)))
        return {**value, name: draw(spoiled(value[name]))}
    if isinstance(value, list) and value and draw(st.booleans()):
        number = draw(st.integers(0, len(value) - 1))
        return [*value[:number], draw(spoiled(value[number])), *value[number + 1 :]]
    return draw(json_values)


@often
@given(st.data(), table_updates)
def test_a_spoiled_update_is_refused_or_applied_and_what_is_stored_can_be_loaded(
    data: st.DataObject, update: JsonObject
) -> None:
    body = {"requirements": [], "updates": [data.draw(spoiled(update))]}
    with contextlib.suppress(InvalidIceberg, StaleUpdate):
        commit = parse_commit_table(body)
        applied = updates.apply(TABLE, commit.updates, Context(NOW_MS + 10))
        assert orjson.dumps(applied.metadata)
        check_table_metadata(applied.metadata)


@often
@given(st.data(), schemas())
def test_a_spoiled_creation_is_refused_or_understood(data: st.DataObject, schema: JsonObject) -> None:
    with contextlib.suppress(InvalidIceberg):
        parse_create_table(data.draw(spoiled({"name": "t", "schema": schema, "properties": {"a": "b"}})))


@often
@given(json_values)
def test_any_json_is_refused_or_understood(value: Any) -> None:
    for parse in (
        parse_commit_table,
        parse_commit_transaction,
        parse_create_table,
        requests.parse_create_view,
        requests.parse_commit_view,
        check_table_metadata,
    ):
        with contextlib.suppress(InvalidIceberg):
            parse(value)


@often
@given(st.sampled_from(sorted(names.TABLE_ACTIONS)), st.dictionaries(st.text(max_size=5), json_values, max_size=3))
def test_any_body_under_a_known_action_is_refused_or_understood(action: str, body: JsonObject) -> None:
    sent = {"action": action, **{name: value for name, value in body.items() if name != "action"}}
    before = deepcopy(sent)
    with contextlib.suppress(InvalidIceberg):
        parse_table_updates([sent])
    assert sent == before


@often
@given(st.data())
def test_spoiled_metadata_is_refused_or_can_be_changed(data: st.DataObject) -> None:
    """Whatever passes the check at registration, no later commit stumbles over it."""
    document = data.draw(spoiled(TABLE))
    with contextlib.suppress(InvalidIceberg, StaleUpdate):
        found = check_table_metadata(document)
        sent = data.draw(st.lists(table_updates, min_size=1, max_size=3))
        updates.apply(found, parse_table_updates(sent), Context(NOW_MS + 10, previous_location="p"))
