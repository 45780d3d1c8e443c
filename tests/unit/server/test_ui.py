"""What pages are made of: markup that escapes, figures for people, charts, graphs, and the server's own numbers."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakepact.iceberg.requests import Identifier
from lakepact.runtime import SystemClock
from lakepact.server.metrics import Metrics
from lakepact.server.ui import text
from lakepact.server.ui.charts import Point, area, nice, thinned
from lakepact.server.ui.graphs import Node, columns_of, picture
from lakepact.server.ui.html import Markup, escape, join, lines, name, tag, visible
from lakepact.server.ui.links import Links, levels_of
from lakepact.server.ui.samples import Sample, Samples, quantile, rate_of, sample_of

# --- markup ---


@given(st.text(), st.text())
def test_t_ui_1_whatever_a_text_holds_it_stays_a_text(content: str, value: str) -> None:
    seen: list[tuple[str, object]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            seen.append((tag, attrs))

        def handle_comment(self, data: str) -> None:
            seen.append(("comment", data))

    reader = Reader()
    reader.feed(tag("p", content, title=value))
    reader.close()
    assert [one[0] for one in seen] == ["p"]
    [(_, attributes)] = seen
    assert isinstance(attributes, list) and [key for key, _ in attributes] == ["title"]
    assert unescape(escape(content)) == unescape(content) or "&" in content


def test_children_are_markup_text_numbers_nothing_or_many_of_these() -> None:
    assert tag("p", "<", Markup("<b>"), 3, None, ["&", (x for x in "ab")]) == "<p>&lt;<b>3&amp;ab</p>"
    assert tag("input", disabled=True, value=None, checked=False, aria_label="x", class_="y") == (
        '<input disabled aria-label="x" class="y">'
    )
    assert join("a", None, "<") == "a&lt;"
    assert lines("a\n<b>") == '<span class="lines"><bdi>a</bdi>\n<bdi>&lt;b&gt;</bdi>\n</span>'


def test_nothing_hides_in_a_name() -> None:
    assert visible("a\u202eb\u0000c\u200bd\ud800") == "a\\u202eb\\u0000c\\u200bd\\ud800"
    assert name("<i>") == "<bdi>&lt;i&gt;</bdi>"


@given(st.lists(st.text(min_size=1, alphabet=st.characters(exclude_categories=["Cs", "Cc"])), min_size=1, max_size=3))
def test_an_address_holds_one_segment_for_a_namespace_and_one_for_a_name(levels: list[str]) -> None:
    from urllib.parse import unquote

    address = Links("/base").table("main", Identifier(tuple(levels), levels[0]))
    _, base, ui, catalog, warehouse, namespace, table = address.split("/")
    assert (base, ui, catalog, warehouse) == ("base", "ui", "catalog", "main")
    assert levels_of(unquote(namespace)) == tuple(levels) and unquote(table) == levels[0]


# --- figures ---


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (text.size(None), "–"),
        (text.size(0), "0 B"),
        (text.size(1_536), "1.5 KiB"),
        (text.size(1024**6 * 3), "3.0 EiB"),
        (text.count(1_234_567), "1,234,567"),
        (text.duration(0.0042), "4 ms"),
        (text.duration(59.94), "59.9 s"),
        (text.duration(3_725), "1 h 2 min"),
        (text.duration(86_400 * 3), "3 d"),
        (text.ago(1_000), "just now"),
        (text.ago(61_000), "1 min ago"),
        (text.ago(-90_000), "in 1 min"),
        (text.short(12_345), "12.3k"),
        (text.plural(1, "check"), "1 check"),
        (text.plural(2, "check"), "2 checks"),
    ],
)
def test_figures_are_written_for_people(shown: str, expected: str) -> None:
    assert shown == expected


def test_what_is_no_figure_and_no_time_is_said_to_be_none() -> None:
    assert [text.number_of(one) for one in (True, "x", "1" * 30, None, 1.5, "-3", 4)] == [None] * 5 + [-3, 4]
    for odd in (-1, 10**18, None, "now", True):
        assert text.instant_text(odd) == "unknown time"


@given(st.floats(min_value=0, max_value=1e18))
def test_an_axis_holds_its_highest_value_and_is_not_much_longer(value: float) -> None:
    for end in (nice(value), text.nice_size(value)):
        assert end >= value
        assert end <= max(10 * value, 1.0)


# --- charts and graphs ---


@given(st.integers(min_value=0, max_value=2_000))
def test_a_chart_has_a_bounded_number_of_points_and_always_the_newest(count: int) -> None:
    points = [Point(at, float(at), str(at)) for at in range(count)]
    some = thinned(points, 60)
    assert len(some) == min(count, 60)
    assert not points or some[-1] == points[-1]
    assert len(area(points, title="t", shown=str)) < 20_000


def test_a_graph_goes_from_left_to_right_whatever_circles_it_has() -> None:
    nodes = [Node(key, key) for key in "abcde"]
    edges = [("a", "b"), ("b", "c"), ("e", "c"), ("c", "a"), ("x", "d")]
    columns = columns_of(nodes, edges)
    at = {node.key: number for number, column in enumerate(columns) for node in column}
    assert set(at) == set("abcde")
    assert at["e"] == at["c"] - 1
    assert "<svg" in picture(columns, edges, label="<x>")


def test_an_arrow_past_a_column_runs_behind_no_box() -> None:
    nodes = [Node(key, key) for key in ("raw", "view", "other", "facts")]
    edges = [("raw", "view"), ("raw", "other"), ("raw", "facts"), ("view", "facts"), ("other", "facts")]
    drawn = str(picture(columns_of(nodes, edges), edges, label="g"))
    boxes = [
        tuple(map(int, box)) for box in re.findall(r'<rect x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)"', drawn)
    ]
    assert len(boxes) == 4
    [(lane, until)] = re.findall(r"(\d+)H(\d+)", drawn)
    for x, y, width, height in boxes:
        beside = int(until) <= x or int(until) > x + width
        assert beside or not y <= int(lane) <= y + height


# --- the server's own numbers ---


def test_rates_are_the_differences_of_samples_of_what_is_counted() -> None:
    metrics = Metrics()
    metrics.operations_are(["updateTable", "loadTable"])
    before = sample_of(metrics, 0, 0.0)
    for _ in range(20):
        metrics.commit_applied(1)
        metrics.request_began()
        metrics.request_ended("updateTable", 200, 0.02)
    metrics.commit_conflicted()
    metrics.request_began()
    metrics.request_ended("loadTable", 500, 9.0)
    after = sample_of(metrics, 10_000, 10.0)
    rate = rate_of(before, after)
    assert (rate.commits, rate.conflicts, rate.requests) == (2.0, 0.1, 2.1)
    assert (after.applied, after.errors, after.open_requests) == (20.0, 1.0, 0.0)
    assert rate.median_s is not None and 0.01 < rate.median_s <= 0.025
    assert rate_of(after, before).commits == 0.0


def test_the_ring_of_samples_is_bounded_and_takes_no_two_at_once() -> None:
    class Hurried(SystemClock):
        now_s = 0.0

        def monotonic_s(self) -> float:
            return self.now_s

    clock = Hurried()
    samples = Samples(Metrics(), clock)
    for _ in range(1_000):
        samples.take()
        samples.take()
        clock.now_s += 5
    assert len(samples.rates()) == 359


def test_a_quantile_is_found_between_the_bounds() -> None:
    assert quantile({}, 0.5) is None
    assert quantile({1.0: 0, float("inf"): 0}, 0.5) is None
    assert quantile({1.0: 0, 2.0: 10, float("inf"): 10}, 0.5) == 1.5
    assert quantile({1.0: 5, float("inf"): 10}, 0.95) == 1.0
    assert Sample(0, 0.0).buckets == {}
