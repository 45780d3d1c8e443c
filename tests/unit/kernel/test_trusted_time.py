"""What time it is, judged from evidence that disagrees."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakepact.kernel.trusted_time import (
    GRACE_MS,
    MAX_DIFFERENCE_MS,
    REFRESH_MS,
    Evidence,
    Judgement,
    TrustedClock,
    Uptime,
    Watermark,
    judge,
)
from tests.unit.kernel.worlds import START_MS, HandClock

DAY_MS = 86_400_000
NOW_MS = START_MS
WRONG = [pytest.param(days * DAY_MS, id=f"{days:+d} days") for days in (40, -40)]


def up(ms: int, boot: str = "b") -> Uptime:
    return Uptime(boot, ms)


def confirmed(time_ms: int, uptime: Uptime) -> Watermark:
    return Watermark(time_ms, uptime, since_ms=None, confirmed_ms=time_ms)


class Machine(HandClock):
    """A clock that can be set without time passing."""

    off_ms = 0

    def now_ms(self) -> int:
        return self.at_ms + self.off_ms


# --- a store that has a clock ---


@pytest.mark.parametrize("off_ms", WRONG)
def test_a_clock_that_disagrees_with_the_store_follows_the_store_and_confirms_nothing(off_ms: int) -> None:
    made = judge(Evidence(NOW_MS + off_ms, up(0), store_ms=NOW_MS, store_is_independent=True))
    assert (made.time_ms, made.confirmed, made.difference_ms) == (NOW_MS, False, off_ms)


def test_a_clock_that_agrees_with_the_store_is_confirmed() -> None:
    made = judge(Evidence(NOW_MS, up(0), store_ms=NOW_MS + MAX_DIFFERENCE_MS, store_is_independent=True))
    assert made.confirmed and made.time_ms == NOW_MS


@pytest.mark.parametrize("off_ms", WRONG)
def test_a_store_whose_clock_is_set_is_not_followed_while_two_clocks_agree(off_ms: int) -> None:
    made = judge(
        Evidence(NOW_MS, up(0), store_ms=NOW_MS + off_ms, store_is_independent=True, expected_ms=NOW_MS - 5_000)
    )
    assert (made.time_ms, made.confirmed) == (NOW_MS, False)


def test_a_store_whose_clock_is_corrected_is_followed() -> None:
    made = judge(Evidence(NOW_MS, up(0), store_ms=NOW_MS, store_is_independent=True, expected_ms=NOW_MS + 40 * DAY_MS))
    assert made.confirmed and made.time_ms == NOW_MS


# --- a store without ---


def test_the_first_use_of_a_store_leaves_a_watermark() -> None:
    made = judge(Evidence(NOW_MS, up(7)))
    assert made.confirmed and made.watermark == confirmed(NOW_MS, up(7))


@pytest.mark.parametrize("off_ms", WRONG)
def test_a_clock_that_disagrees_with_watermark_and_uptime_follows_them_and_writes_nothing(off_ms: int) -> None:
    mark = confirmed(NOW_MS - DAY_MS, up(1_000))
    made = judge(Evidence(NOW_MS + off_ms, up(1_000 + DAY_MS), watermark=mark))
    assert (made.time_ms, made.confirmed, made.watermark) == (NOW_MS, False, None)


def test_time_without_a_server_is_confirmed_by_the_uptime_of_the_machine() -> None:
    mark = confirmed(NOW_MS - DAY_MS, up(1_000))
    made = judge(Evidence(NOW_MS, up(1_000 + DAY_MS), watermark=mark))
    assert made.confirmed and made.watermark == confirmed(NOW_MS, up(1_000 + DAY_MS))


def test_a_fresh_watermark_is_not_written_again() -> None:
    mark = confirmed(NOW_MS, up(1_000))
    assert judge(Evidence(NOW_MS + 1_000, up(2_000), watermark=mark)).watermark is None
    assert judge(Evidence(NOW_MS + REFRESH_MS, up(1_000 + REFRESH_MS), watermark=mark)).watermark is not None


def test_a_file_system_that_disagrees_is_followed() -> None:
    made = judge(Evidence(NOW_MS + 40 * DAY_MS, up(1), store_ms=NOW_MS, watermark=confirmed(NOW_MS, up(0))))
    assert (made.time_ms, made.confirmed, made.watermark) == (NOW_MS, False, None)


def test_a_quick_restart_of_the_machine_changes_nothing() -> None:
    made = judge(Evidence(NOW_MS + 60_000, up(5, "c"), watermark=confirmed(NOW_MS, up(1_000))))
    assert made.confirmed and made.watermark == confirmed(NOW_MS + 60_000, up(5, "c"))


def test_a_leap_over_a_restart_counts_only_after_it_was_observed_for_long() -> None:
    mark = confirmed(NOW_MS, up(1_000))
    ahead_ms = NOW_MS + 40 * DAY_MS
    first = judge(Evidence(ahead_ms, up(5, "c"), watermark=mark))
    assert (first.time_ms, first.confirmed) == (ahead_ms, False)
    assert first.watermark == Watermark(ahead_ms, up(5, "c"), since_ms=5, confirmed_ms=NOW_MS)
    later = judge(Evidence(ahead_ms + GRACE_MS - 10, up(GRACE_MS - 5, "c"), watermark=first.watermark))
    assert not later.confirmed and later.watermark is not None and later.watermark.since_ms == 5
    last = judge(Evidence(ahead_ms + GRACE_MS, up(5 + GRACE_MS, "c"), watermark=later.watermark))
    assert last.confirmed


def test_a_leap_that_is_corrected_in_time_leaves_no_trace() -> None:
    mark = confirmed(NOW_MS, up(1_000))
    wrong = judge(Evidence(NOW_MS + 40 * DAY_MS, up(5, "c"), watermark=mark)).watermark
    right = judge(Evidence(NOW_MS + 60_000, up(60_005, "c"), watermark=wrong))
    assert right.confirmed and right.watermark == confirmed(NOW_MS + 60_000, up(60_005, "c"))


def test_two_servers_that_disagree_after_a_restart_never_confirm_one_another() -> None:
    mark = confirmed(NOW_MS, up(1_000))
    for minute in range(0, 300, 2):
        for ahead_days in (3, 40):
            uptime = up(minute * 60_000, "c")
            made = judge(Evidence(NOW_MS + ahead_days * DAY_MS + uptime.ms, uptime, watermark=mark))
            assert not made.confirmed
            mark = made.watermark or mark


def test_a_clock_behind_the_watermark_after_a_restart_does_not_set_time_back() -> None:
    made = judge(Evidence(NOW_MS - 40 * DAY_MS, up(5, "c"), watermark=confirmed(NOW_MS, up(1_000))))
    assert (made.time_ms, made.confirmed, made.watermark) == (NOW_MS, False, None)


def test_a_clock_that_was_set_for_good_counts_once_the_old_time_was_not_confirmed_for_long() -> None:
    mark = confirmed(NOW_MS, up(0))
    evidence = Evidence(NOW_MS + 2 * DAY_MS, up(GRACE_MS), watermark=mark, disputed_ms=GRACE_MS)
    assert judge(evidence).confirmed
    assert not judge(replace(evidence, disputed_ms=GRACE_MS - 1)).confirmed
    confirmed_meanwhile = confirmed(NOW_MS + GRACE_MS - 1_000, up(GRACE_MS - 1_000))
    assert not judge(replace(evidence, watermark=confirmed_meanwhile)).confirmed


# --- the clock ---


def test_nothing_is_confirmed_before_the_first_judgement() -> None:
    assert TrustedClock(HandClock()).confirmed_ms() == 0


@pytest.mark.parametrize("off_ms", WRONG)
def test_a_clock_that_is_set_while_it_runs_changes_neither_time_nor_ages(off_ms: int) -> None:
    machine = Machine()
    clock = TrustedClock(machine)
    clock.follow(judge(Evidence(machine.now_ms(), up(0))))
    assert clock.confirmed_ms() == clock.now_ms() == START_MS
    machine.pass_s(10)
    machine.off_ms = off_ms
    assert clock.now_ms() == START_MS + 10_000
    assert clock.confirmed_ms() == 0
    machine.off_ms = 0
    assert clock.confirmed_ms() == START_MS + 10_000


def test_the_confirmed_time_is_never_ahead_of_either_clock() -> None:
    machine = Machine()
    clock = TrustedClock(machine)
    clock.follow(Judgement(START_MS, True, judge(Evidence(START_MS, up(0))).basis))
    for off_ms in (-200_000, 200_000):
        machine.off_ms = off_ms
        assert clock.confirmed_ms() == START_MS + min(off_ms, 0)


def test_time_that_passes_while_the_evidence_is_judged_is_confirmed_with_it() -> None:
    machine = Machine()
    clock = TrustedClock(machine)
    clock_ms, read_s = clock.machine_ms(), clock.monotonic_s()
    machine.pass_s(7)
    clock.follow(judge(Evidence(clock_ms, up(0))), read_s)
    assert clock.confirmed_ms() == START_MS + 7_000
