"""Settings that contradict each other do not start a server, and the error names both of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from lakepact.errors import InvalidSetting
from lakepact.setting_conflicts import RULES
from lakepact.settings import Settings

DAY_S = 86_400

CONTRADICTIONS: list[tuple[dict[str, Any], str, str]] = [
    (
        {"idempotency_lifetime_s": 31 * DAY_S, "retryable_s": 31 * DAY_S},
        "idempotency_lifetime_s = 2678400",
        "horizon_days = 30",
    ),
    ({"retryable_s": 3_599}, "idempotency_lifetime_s = 3600", "retryable_s = 3599"),
    ({"idempotency_lifetime_s": 20}, "request_deadline_s = 30", "idempotency_lifetime_s = 20"),
    ({"open_ttl_s": 7_200, "max_ttl_s": 3_600}, "open_ttl_s = 7200", "max_ttl_s = 3600"),
    ({"lease_s": 600}, "lease_s = 600", "open_ttl_s = 600"),
    ({"lease_s": 60, "prepared_s": 60}, "lease_s = 60", "prepared_s = 60"),
    ({"max_ttl_s": 2 * DAY_S, "horizon_days": 2}, "max_ttl_s = 172800", "horizon_days = 2"),
    ({"deadline_s": 90, "slack_s": 60}, "deadline_s = 90", "slack_s = 60"),
    ({"request_deadline_s": 90, "slack_s": 60}, "request_deadline_s = 90", "slack_s = 60"),
    ({"lame_duck_s": 90, "slack_s": 60}, "lame_duck_s = 90", "slack_s = 60"),
    ({"backoff_s": 2}, "backoff_s = 2", "max_backoff_s = 1"),
    ({"max_transaction_bytes": 1_000}, "max_value_bytes = 262144", "max_transaction_bytes = 1000"),
    ({"rate_limit_burst": 5}, "rate_limit_burst = 5", "rate_limit_per_s = 0"),
    ({"expire_snapshots": True, "gc_interval_s": 0}, "expire_snapshots = true", "gc_interval_s = 0"),
]


@pytest.mark.parametrize(("values", "first", "second"), CONTRADICTIONS)
def test_contradicting_settings_are_refused_with_both_names_and_values(
    values: dict[str, Any], first: str, second: str
) -> None:
    with pytest.raises(InvalidSetting) as raised:
        Settings.load(**values)
    text = str(raised.value)
    assert re.search(rf"\b{re.escape(first)} must [^:]* {re.escape(second)}:", text), text
    # One contradiction is one complaint.
    assert text.count("Change one") == 1


def test_every_rule_has_a_contradiction_that_it_refuses() -> None:
    tested = {(first.split()[0], second.split()[0]) for _, first, second in CONTRADICTIONS}
    assert tested == {(rule.first, rule.second) for rule in RULES}


def test_a_watchdog_is_off_or_patient() -> None:
    assert Settings.load(watchdog_s=0).watchdog_s == 0
    with pytest.raises(InvalidSetting, match=r"watchdog_s.*at least 5"):
        Settings.load(watchdog_s=1)


def test_the_docs_list_the_rules(root: Path) -> None:
    text = (root / "docs" / "operations.md").read_text()
    for rule in RULES:
        assert f"- `{rule.first}` must {rule.says} `{rule.second}`\n" in text
