"""The docs list exactly the metrics there are, with their labels; every label has a closed set of values."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from lakepact.server.metrics import Metrics
from lakepact.server.request_counts import CountedHere, CountedInFiles
from lakepact.stores import pools


def documented(root: Path) -> dict[str, tuple[str, str, str]]:
    """Metric -> (kind, labels, meaning), from the table in the docs."""
    section = (root / "docs" / "operations.md").read_text().split("### Metrics", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(
        r"^\| `((?:lakepact|multi_table|process)_[a-z_]+)` \| (\w+) \| (.*?) \| (.+?) \|$", section, re.MULTILINE
    )
    return {name: (kind, labels, meaning) for name, kind, labels, meaning in rows}


def test_the_docs_list_exactly_the_metrics_there_are(root: Path) -> None:
    expected = {}
    metrics = Metrics()
    metrics.warehouses_are(["main"])
    for family in metrics.registry.collect():
        name = family.name + "_total" * (family.type == "counter")
        labels = sorted({label for sample in family.samples for label in sample.labels if label != "le"})
        expected[name] = (family.type, ", ".join(f"`{label}`" for label in labels) or "-", family.documentation)
    assert documented(root) == expected


def test_metrics_are_in_base_units() -> None:
    """As `promtool check metrics` wants them: seconds and bytes, with the unit in the name."""
    for family in Metrics().registry.collect():
        words = family.name.split("_")
        assert not {"ms", "milliseconds", "minutes", "kb", "mb", "percent"} & set(words), family.name
        assert family.documentation


def test_pools_and_processes_are_measured() -> None:
    metrics = Metrics()
    value = metrics.registry.get_sample_value
    with ThreadPoolExecutor(2) as threads:
        pools.register_threads("threads", threads)
        release = threading.Event()
        jobs = [threads.submit(release.wait) for _ in range(5)]
        metrics.pools()
        assert value("lakepact_pool_size", {"pool": "threads"}) == 2
        assert value("lakepact_pool_busy", {"pool": "threads"}) == 2
        assert (value("lakepact_pool_waiting", {"pool": "threads"}) or 0) >= 3
        release.set()
        wait(jobs)
    for name in ("process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "process_max_fds"):
        assert (value(name) or 0) > 0


def test_what_happened_is_counted_under_its_name() -> None:
    metrics = Metrics()
    metrics.operations_are(["loadTable"])
    metrics.request_began()
    metrics.request_began()
    metrics.request_ended("loadTable", 304, 0.004)
    metrics.commit_applied(20)
    metrics.commit_refused()
    metrics.commit_unknown()
    metrics.commit_retried()
    metrics.metadata_cache_hit()
    metrics.metadata_cache_missed()
    metrics.receipt_written()
    metrics.receipt_failed()

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, labels)

    assert value("lakepact_open_requests") == 1
    assert value("lakepact_requests_total", operation="loadTable", status_class="3xx") == 1
    assert value("lakepact_request_seconds_count", operation="loadTable") == 1
    assert [value("lakepact_commits_total", outcome=name) for name in ("applied", "refused", "unknown")] == [1, 1, 1]
    assert value("lakepact_commit_tables_sum") == 20
    assert value("lakepact_commit_retries_total") == 1
    assert [value("lakepact_metadata_cache_total", result=name) for name in ("hit", "miss")] == [1, 1]
    assert [value("lakepact_receipts_total", result=name) for name in ("written", "failed")] == [1, 1]


def test_the_text_shows_every_label_from_the_start() -> None:
    metrics = Metrics()
    metrics.operations_are(["loadTable"])
    families = {family.name: family for family in text_string_to_metric_families(metrics.text().decode())}
    shown = {tuple(sample.labels.values()) for sample in families["lakepact_requests"].samples}
    assert shown == {(name, f"{kind}xx") for name in ("loadTable", "unmatched") for kind in (2, 3, 4, 5)}


def test_requests_counted_quickly_or_in_files_are_the_same_text() -> None:
    texts = []
    for counted in (CountedHere, CountedInFiles):
        registry = CollectorRegistry()
        counts = counted(registry)
        counts.operations_are(["loadTable", "updateTable"])
        for operation, status, seconds in (
            ("loadTable", 200, 0.0),
            ("loadTable", 304, 0.001),
            ("loadTable", 404, 0.0011),
            ("updateTable", 499, 2.5),
            ("updateTable", 503, 31.0),
        ):
            counts.began()
            counts.ended(operation, status, seconds)
        counts.began()
        texts.append(sorted(generate_latest(registry).decode().splitlines()))
    assert texts[0] == texts[1]
