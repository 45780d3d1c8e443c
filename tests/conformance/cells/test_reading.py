"""Reading: one consistent cut, whatever the keys and values are made of; and pages of a scan."""

from __future__ import annotations

import pytest

from lakepact.kernel.keys import Key, key_of
from lakepact.kernel.model import Cell, Value
from tests.conformance.cells.world import SETTINGS, A, B, World, keys

ODD_SEGMENTS = (
    "a",
    "A",
    "ä",
    "a\u0308",
    "ß",
    "日本語",
    "🦆",
    "\uffff",
    "with space",
    "a.b",
    "..",
    "a/b",
    "a%2Fb",
    "100%",
    "%25",
    "_",
    "-",
    "'; DROP TABLE cells; --",
    "\\",
    '"quoted"',
    "{schema}",
    "$1",
    "*?[]",
    "~",
    "x" * 170,
)

ODD_VALUES: tuple[Value, ...] = (
    {},
    {"snapshot-id": 2**63 - 1, "negative": -(2**63), "largest": 2**64 - 1},
    {"nothing": None, "yes": True, "no": False},
    {"float": 0.1, "small": 5e-324, "large": 1.7976931348623157e308, "whole": 1.0},
    {"nul": "a\x00b", "quote": '"', "backslash": "\\", "line": "a\nb", "duck": "🦆"},
    {"": {"": [[], {}, [{}]]}, "\x00": 1, "key with 'quotes'": {"deep": [1, [2, [3]]]}},
    {"order": 1, "of": 2, "keys": 3, "a": 4},
    {"text": "x" * 200_000},
)


async def test_a_cell_that_never_was_has_revision_0_and_no_value(world: World) -> None:
    assert await world.store.read([A]) == {A: Cell(A, 0, None, None)}


async def test_a_cut_holds_every_key_asked_for_once(world: World) -> None:
    await world.put({A: {"n": 1}})
    cut = await world.store.read([B, A, B, A])
    assert list(cut) == [B, A]
    assert (cut[A].value, cut[B].value) == ({"n": 1}, None)
    assert await world.store.read([]) == {}


async def test_keys_are_what_they_are_spelled_like(world: World) -> None:
    """Every odd key is a cell of its own: nothing is folded, trimmed, normalised or interpreted."""
    odd = [key_of("main", segment) for segment in ODD_SEGMENTS]
    await world.put({key: {"number": number} for number, key in enumerate(odd)})
    found = await world.store.read(odd)
    assert [found[key].value for key in odd] == [{"number": number} for number in range(len(odd))]
    scanned = (await world.store.scan("main", limit=50)).cells
    assert {cell.key: cell.value for cell in scanned} == {key: found[key].value for key in odd}


async def test_a_key_may_be_as_long_as_the_limit(world: World) -> None:
    longest = Key("/".join(["k" * 100] * 5))[: SETTINGS.max_key_bytes]
    await world.put({Key(longest): {"n": 1}})
    assert await world.value(Key(longest)) == {"n": 1}


@pytest.mark.parametrize("value", ODD_VALUES, ids=lambda value: str(value)[:30])
async def test_a_value_comes_back_exactly_as_it_was_written(world: World, value: Value) -> None:
    plan = world.transaction({A: (0, value)}, answer=value)
    await world.store.commit(plan)
    found = await world.value(A)
    assert found == value
    assert list(found) == list(value)
    assert all(type(found[name]) is type(value[name]) for name in value)
    again = await world.store.commit(plan)
    assert again.answer == value  # type: ignore[union-attr]
    assert (await world.record(plan.id)).writes[0].value == value


# --- scans ---


async def _scanned(world: World, prefix: str, limit: int) -> list[Cell]:
    cells: list[Cell] = []
    after: str | None = None
    for _ in range(200):
        page = await world.store.scan(prefix, after, limit)
        assert len(page.cells) <= limit
        cells.extend(page.cells)
        after = page.after
        if after is None:
            return cells
    raise AssertionError("the scan does not end")


@pytest.mark.parametrize("limit", [1, 2, 7, 50])
async def test_the_pages_of_a_scan_hold_every_live_cell_once(world: World, limit: int) -> None:
    cells = keys(15)
    await world.put({key: {"key": key} for key in cells})
    await world.put({cells[3]: None, cells[14]: None})
    found = await _scanned(world, "main/cells", limit)
    expected = [key for key in cells if key not in (cells[3], cells[14])]
    assert sorted(cell.key for cell in found) == expected
    assert all(cell.value == {"key": cell.key} and cell.revision == 1 and cell.writer for cell in found)


async def test_a_scan_goes_on_behind_any_cell_by_its_key(world: World) -> None:
    """Whoever shows a part of a page makes the next cursor of the last that they have shown."""
    names = [
        *keys(9),
        key_of("main", "cells", "a/b"),
        key_of("main", "cells", "ü z"),
        key_of("main", "cells", "x" * 300),
    ]
    await world.put({key: {"n": 1} for key in names})
    transaction_id = await world.begin()
    staged = key_of("main", "cells", "staged")
    await world.store.stage(transaction_id, "1", {staged: {"n": 2}})
    outside = [cell.key for cell in (await world.store.scan("main/cells")).cells]
    inside = [cell.key for cell in (await world.store.scan_in(transaction_id, "main/cells")).cells]
    assert (set(outside), set(inside)) == (set(names), {*names, staged})
    for number, key in enumerate(outside):
        assert [one.key for one in (await world.store.scan("main/cells", key)).cells] == outside[number + 1 :]
    for number, key in enumerate(inside):
        page = await world.store.scan_in(transaction_id, "main/cells", key)
        assert [one.key for one in page.cells] == inside[number + 1 :]


async def test_a_prefix_is_whole_segments(world: World) -> None:
    names = [
        "main/a",
        "main/a/1",
        "main/a/1/x",
        "main/a0",
        "main/ab",
        "main/a-b/1",
        "main/a.b/1",
        "mai/a/1",
        "other/a/1",
    ]
    await world.put({Key(name): {"n": 1} for name in names})
    assert sorted(cell.key for cell in await _scanned(world, "main/a", 3)) == ["main/a/1", "main/a/1/x"]
    assert sorted(cell.key for cell in await _scanned(world, "main", 50)) == sorted(
        name for name in names if name.startswith("main/")
    )
    assert sorted(cell.key for cell in await _scanned(world, "", 2)) == sorted(names)
    assert await _scanned(world, "main/nothing", 5) == []


async def test_a_prefix_with_an_escaped_segment_is_that_segment(world: World) -> None:
    inside, outside = key_of("main", "a/b", "x"), key_of("main", "a", "b", "x")
    await world.put({inside: {"n": 1}, outside: {"n": 2}})
    assert [cell.key for cell in await _scanned(world, key_of("main", "a/b"), 5)] == [inside]
    assert [cell.key for cell in await _scanned(world, key_of("main", "a", "b"), 5)] == [outside]


async def test_a_cell_that_was_only_read_or_locked_is_not_scanned(world: World) -> None:
    await world.store.commit(world.transaction({A: (0, {"n": 1})}, {B: 0}))
    await world.store.prepare(world.transaction({key_of("main", "tables", "p"): (0, {})}, {key_of("main", "q"): 0}))
    assert [cell.key for cell in await _scanned(world, "", 10)] == [A]


async def test_a_cell_changed_during_a_scan_is_still_seen(world: World) -> None:
    cells = keys(6)
    await world.put({key: {"n": 0} for key in cells})
    page = await world.store.scan("main", limit=3)
    await world.put({key: {"n": 1} for key in cells})
    rest = await world.store.scan("main", page.after, limit=50)
    assert sorted(cell.key for cell in (*page.cells, *rest.cells)) == cells
    assert {cell.value["n"] for cell in rest.cells if cell.value} == {1}
