"""Whatever is sent to a view: its current version is there, ids are unique, and the log has no holes."""

from __future__ import annotations

from copy import deepcopy

from hypothesis import given, settings
from hypothesis import strategies as st

from lakepact.iceberg.errors import InvalidIceberg
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.parse import parse_view_updates
from lakepact.iceberg.views import apply_to_view, read_view
from tests.property.iceberg.strategies import view_updates
from tests.unit.iceberg.tables import BORN_MS
from tests.unit.iceberg.test_views import create


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(view_updates, min_size=1, max_size=4), max_size=6))
def test_every_version_of_a_view_is_sound(sent: list[list[JsonObject]]) -> None:
    view = create() | {"x-unknown": [1]}
    for number, request in enumerate(sent):
        before = deepcopy((view, request))
        highest = max(one["version-id"] for one in view["versions"])
        try:
            applied = apply_to_view(view, parse_view_updates(request), BORN_MS + number)
        except InvalidIceberg:
            assert (view, request) == before
            continue
        assert (view, request) == before
        assert applied.changed == (applied.metadata != view)
        view = read_view(applied.metadata)
        ids = [one["version-id"] for one in view["versions"]]
        assert len(set(ids)) == len(ids)
        assert {entry["version-id"] for entry in view["version-log"]} <= set(ids)
        assert view["version-log"][-1]["version-id"] == view["current-version-id"]
        assert {one["schema-id"] for one in view["versions"]} <= {one["schema-id"] for one in view["schemas"]}
        added = {update["action"] for update in request} & {"add-view-version"}
        assert max(ids) >= highest or not added
        assert view["x-unknown"] == [1]
