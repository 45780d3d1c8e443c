"""A reader outside, with PyIceberg: it looks again and again, and says if two tables ever disagree."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pyarrow.compute as compute

import lakepact
from lakepact.client import Lake, NotFound, Retry, Unavailable, Unknown

TABLES = ("shop.orders", "shop.daily", "shop.features", "shop.labels")


@dataclass(slots=True)
class Seen:
    looks: int = 0
    unanswered: int = 0
    """While the server was down."""

    empty: int = 0
    """Before anything was published."""

    states: list[int] = field(default_factory=list)
    """The revenue of each different state that was seen."""

    torn: list[str] = field(default_factory=list)


class Watcher(threading.Thread):
    def __init__(self, uri: str) -> None:
        super().__init__(name="watcher", daemon=True)
        self._uri = uri
        self._enough = threading.Event()
        self.seen = Seen()

    def run(self) -> None:
        with lakepact.connect(self._uri, retry=Retry(attempts=1)) as lake:
            while not self._enough.wait(0.02):
                try:
                    self._look(lake)
                except (Unavailable, Unknown):
                    self.seen.unanswered += 1

    def stop(self) -> Seen:
        self._enough.set()
        self.join()
        return self.seen

    def _look(self, lake: Lake) -> None:
        try:
            cut = lake.read_at(TABLES)
        except NotFound:
            self.seen.empty += 1
            return
        self.seen.looks += 1
        orders, daily, features, labels = (cut[name].pyiceberg().scan().to_arrow() for name in TABLES)
        revenue = compute.sum(orders["amount"]).as_py()
        agreed = {
            "orders and daily": (revenue, compute.sum(daily["amount"]).as_py()),
            "orders and features": (revenue, compute.sum(features["amount"]).as_py()),
            "features and labels": (features.num_rows, labels.num_rows),
        }
        self.seen.torn += [f"{what}: {one} and {other}" for what, (one, other) in agreed.items() if one != other]
        if revenue not in self.seen.states:
            self.seen.states.append(revenue)
