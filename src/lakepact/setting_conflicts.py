"""Settings that contradict each other: one list of rules, checked when the settings are loaded.

Each rule compares two settings. A server that started with such a pair would break a promise later, or ignore one of
the two, so it does not start. The error names both settings with their values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

_DAY_S: Final = 86_400


@dataclass(frozen=True, slots=True)
class Rule:
    """`holds` gets the values of the two settings. `says` completes "<first> must ... <second>"."""

    first: str
    second: str
    says: str
    why: str
    holds: Callable[[Any, Any], bool]


RULES: Final = (
    Rule(
        "idempotency_lifetime_s",
        "horizon_days",
        "be at most as long as",
        "clients may repeat a request under its key for the first, and records are kept for the second",
        lambda lifetime_s, days: lifetime_s <= days * _DAY_S,
    ),
    Rule(
        "idempotency_lifetime_s",
        "retryable_s",
        "be at most",
        "a transaction that can be retried must wait for as long as the server advertises that clients may repeat it",
        lambda lifetime_s, retryable_s: lifetime_s <= retryable_s,
    ),
    Rule(
        "request_deadline_s",
        "idempotency_lifetime_s",
        "be at most",
        "a request may take longer than its key lives",
        lambda deadline_s, lifetime_s: deadline_s <= lifetime_s,
    ),
    Rule(
        "open_ttl_s",
        "max_ttl_s",
        "be at most",
        "a transaction that asks for no lifetime would live longer than one may ask for",
        lambda ttl_s, most_s: ttl_s <= most_s,
    ),
    Rule(
        "lease_s",
        "open_ttl_s",
        "be less than",
        "a coordinator would hold a transaction for longer than the transaction lives",
        lambda lease_s, ttl_s: lease_s < ttl_s,
    ),
    Rule(
        "lease_s",
        "prepared_s",
        "be less than",
        "a coordinator would hold a transaction for longer than it may be prepared",
        lambda lease_s, prepared_s: lease_s < prepared_s,
    ),
    Rule(
        "max_ttl_s",
        "horizon_days",
        "be less than",
        "a transaction would live longer than its id is valid",
        lambda ttl_s, days: ttl_s < days * _DAY_S,
    ),
    Rule(
        "deadline_s",
        "slack_s",
        "be at most",
        "no call may live longer than records are kept beyond the horizon",
        lambda deadline_s, slack_s: deadline_s <= slack_s,
    ),
    Rule(
        "request_deadline_s",
        "slack_s",
        "be at most",
        "no request may live longer than records are kept beyond the horizon",
        lambda deadline_s, slack_s: deadline_s <= slack_s,
    ),
    Rule(
        "lame_duck_s",
        "slack_s",
        "be at most",
        "no process may live longer after its end has begun than records are kept beyond the horizon",
        lambda lame_duck_s, slack_s: lame_duck_s <= slack_s,
    ),
    Rule(
        "backoff_s",
        "max_backoff_s",
        "be at most",
        "the first pause would be longer than the longest",
        lambda first_s, most_s: first_s <= most_s,
    ),
    Rule(
        "max_value_bytes",
        "max_transaction_bytes",
        "be at most",
        "one value may be larger than all values of a transaction together",
        lambda value, transaction: value <= transaction,
    ),
    Rule(
        "rate_limit_burst",
        "rate_limit_per_s",
        "be 0 without",
        "there is no limit that requests at once could exceed",
        lambda burst, per_s: burst == 0 or per_s > 0,
    ),
    Rule(
        "expire_snapshots",
        "gc_interval_s",
        "be false without",
        "snapshots are expired by the collection that this interval turns off",
        lambda expire, interval_s: not expire or interval_s > 0,
    ),
)


def conflicts(settings: Any) -> Iterator[str]:
    """A text for every rule that these settings break."""
    for rule in RULES:
        first, second = getattr(settings, rule.first), getattr(settings, rule.second)
        if not rule.holds(first, second):
            pair = f"{rule.first} = {_text(first)} must {rule.says} {rule.second} = {_text(second)}"
            yield f"{pair}: {rule.why}. Change one of them"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
