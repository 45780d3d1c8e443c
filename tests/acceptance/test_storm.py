"""A small storm: what `python -m tests.bench storm` does for ten minutes, once through its catalogue."""

from __future__ import annotations

from pathlib import Path

from tests.bench.storm import storm
from tests.bench.storm.bad import KINDS

ENOUGH_S = 1_000.0
"""How long it may take at most: it is over when there were enough requests."""


def test_t_limit_3_among_good_requests_bad_ones_break_nothing(tmp_path: Path) -> None:
    came = storm(tmp_path, ENOUGH_S, requests=25 * len(KINDS))
    assert came.wrong == []
    assert came.classes["5xx"] == came.classes["no answer"] == 0
    assert set(came.bad) == set(KINDS)
    good, bad = came.statuses.total(), sum(counted.total() for counted in came.bad.values())
    assert 1 / 25 < bad / (good + bad) < 1 / 15
