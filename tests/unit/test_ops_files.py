"""The dashboard and the alert rules ask for metrics, labels and values that exist, and point to docs that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from prometheus_client.parser import text_string_to_metric_families

from lakepact.server.app import build
from lakepact.server.metrics import Metrics
from lakepact.settings import Settings
from lakepact.v1 import transactions_pb2 as pb

ROOT = Path(__file__).parents[2]
FROM_SCRAPING = frozenset({"instance", "job"})


@pytest.fixture(scope="module")
def dashboard() -> Any:
    return json.loads((ROOT / "ops" / "grafana-dashboard.json").read_text())


@pytest.fixture(scope="module")
def rules() -> list[Any]:
    [group] = yaml.safe_load((ROOT / "ops" / "alerts.yml").read_text())["groups"]
    found: list[Any] = group["rules"]
    return found


async def samples() -> dict[str, dict[str, set[str]]]:
    """Every series that a server may show: its labels, and the values that each has."""
    service = await build(Settings.load(store="memory://", warehouse="memory://"))
    await service.close()
    metrics = Metrics()
    metrics.warehouses_are(["main"])
    over_grpc = [f"grpc{method.name}" for method in pb.DESCRIPTOR.services_by_name["Transactions"].methods]
    metrics.operations_are([*(route.operation for route in service.routes), *over_grpc])
    found: dict[str, dict[str, set[str]]] = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for name, value in sample.labels.items():
                labels.setdefault(name, set()).add(value)
    return found


def queries(dashboard: Any, rules: list[Any]) -> Iterator[str]:
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield from (variable["query"] for variable in dashboard["templating"]["list"] if variable["type"] == "query")
    yield from (rule["expr"] for rule in rules)


async def test_every_metric_label_and_value_that_is_asked_for_exists(dashboard: Any, rules: list[Any]) -> None:
    known = await samples()
    for query in queries(dashboard, rules):
        asked = re.findall(r"\b((?:lakepact|multi_table|process)_\w+)(\{[^}]*\})?", query)
        assert asked, query
        for metric, selector in asked:
            assert metric in known, f"there is no {metric}: {query}"
            for label, sign, value in re.findall(r'(\w+)(=~|=|!=|!~)"([^"]*)"', selector or ""):
                if label in FROM_SCRAPING:
                    continue
                assert label in known[metric], f"{metric} has no label {label}: {query}"
                wanted = value.split("|") if sign == "=~" else [value]
                assert set(wanted) <= known[metric][label], f"{label} of {metric} is never {value}: {query}"
        for grouped in re.findall(r"by \(([^)]*)\)", query):
            for label in (one.strip() for one in grouped.split(",")):
                assert label in FROM_SCRAPING or any(label in known[metric] for metric, _ in asked), query
        # A histogram is asked for by its buckets.
        if "histogram_quantile" in query:
            assert all(metric.endswith("_bucket") for metric, _ in asked), query


def test_the_dashboard_holds_together(dashboard: Any) -> None:
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells


def test_every_rule_says_what_to_do_and_where_to_read_on(rules: list[Any]) -> None:
    names = [rule["alert"] for rule in rules]
    assert len(set(names)) == len(names)
    for rule in rules:
        assert rule["labels"]["severity"] in ("page", "ticket")
        annotations = rule["annotations"]
        assert annotations["summary"] and annotations["do"]
        file, _, heading = annotations["docs"].partition("#")
        headings = re.findall(r"^#+ (.*)$", (ROOT / file).read_text(), re.MULTILINE)
        anchors = {re.sub(r"[^a-z0-9 -]", "", one.lower()).replace(" ", "-") for one in headings}
        assert heading in anchors, annotations["docs"]


def test_commits_are_watched_at_every_door(dashboard: Any, rules: list[Any]) -> None:
    every = "updateTable|commitTransaction|publishTransaction|commitDeltaTable|grpcCommitTransaction"
    [slow] = [rule for rule in rules if rule["alert"] == "LakepactSlowCommits"]
    [latency] = [panel for panel in dashboard["panels"] if panel["title"].startswith("Latency of loads and commits")]
    assert f'operation=~"{every}"' in slow["expr"]
    assert every in latency["targets"][0]["expr"]


CERTIFICATE = "lakepact_certificate_ends_timestamp_seconds"
"""Each server's own."""


def test_what_one_of_several_servers_does_is_asked_of_all_of_them(rules: list[Any]) -> None:
    """The others show 0, and an age that is that of the epoch."""
    for rule in rules:
        for metric in {*re.findall(r"\w+_timestamp_seconds", rule["expr"])} - {CERTIFICATE}:
            assert f"max({metric})" in rule["expr"], rule["alert"]
