"""Every bound of the kernel, in one value. `docs/operations.md` lists them; a test keeps the two in step."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KernelSettings:
    lease_s: float = 10.0
    """How long a coordinator may be silent before others may end its attempt."""

    open_ttl_s: float = 600.0
    """How long an open transaction lives unless it asks for another time or is renewed."""

    max_ttl_s: float = 86_400.0
    """The longest life an open or prepared transaction may ask for."""

    prepared_s: float = 3_600.0
    """How long a prepared transaction may hold its cells, from its prepare or its last renewal."""

    deadline_s: float = 30.0
    """How long one call may take. Checked before every request to the store."""

    retryable_s: float = 7_200.0
    """How long a retryable transaction waits for the same id before it is aborted."""

    horizon_days: int = 30
    """How old a transaction id may be. Records are kept at least this long."""

    max_ahead_s: float = 86_400.0
    """How far in the future a transaction id may be dated."""

    slack_s: float = 86_400.0
    """Beyond the horizon: the longest life of any process or request. Stubs are deleted only after both."""

    trim_after_s: float = 90_000.0
    """How old a finished record must be before its plan is trimmed away (key lifetime plus a day)."""

    max_cells: int = 2_000
    """Cells one transaction may name, written and read together."""

    max_value_bytes: int = 262_144
    """The size of one value, encoded."""

    max_transaction_bytes: int = 16_777_216
    """The size of all values of one transaction, encoded."""

    max_key_bytes: int = 512
    """The length of a key in UTF-8."""

    max_page: int = 1_000
    """The largest page of a scan or a listing."""

    attempts: int = 12
    """How often one call tries again after a collision, a fence or a moved cut."""

    resends: int = 3
    """How often the same bytes are sent again after an unknown answer."""

    backoff_s: float = 0.02
    """The first pause after a collision; it doubles, with jitter, up to max_backoff_s."""

    max_backoff_s: float = 1.0
    """The longest pause between two attempts."""

    cached_bytes: int = 67_108_864
    """Memory for cells with their version tokens, and as much again for decided records. It saves requests."""

    write_format: int = 1
    """The document format written. A release reads this one and the next."""
