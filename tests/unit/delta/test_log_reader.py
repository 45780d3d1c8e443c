"""Logs that are there: from the first version, from a checkpoint, and with pieces missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from lakepact.delta.actions import Action, Add, CommitInfo, DeletionVector, Protocol
from lakepact.delta.checkpoint import checkpoint_file
from lakepact.delta.codec import commit_file, digest
from lakepact.delta.errors import BadLog, UnsupportedFeature
from lakepact.delta.log_reader import Base, LogFile, Version, listing, read_log, read_state
from lakepact.delta.state import replay
from tests.unit.delta.tables import CREATION, META, add, remove

VERSIONS: list[Sequence[Action]] = [CREATION, [add("a")], [add("b")], [remove("a")], [add("c")]]


class Log:
    """Files of a log, in memory."""

    def __init__(self, versions: Sequence[Sequence[Action]] = VERSIONS) -> None:
        self.versions = versions
        self.files = {
            f"{number:020d}.json": commit_file(actions, CommitInfo(1000 + number, "WRITE"))
            for number, actions in enumerate(versions)
        }

    def checkpoint(self, version: int, name: str = "{:020d}.checkpoint.parquet") -> None:
        file = checkpoint_file(replay(self.versions[: version + 1]), tombstones_after_ms=0)
        self.files[name.format(version)] = file

    def listed(self) -> list[LogFile]:
        return [LogFile(name, 5000) for name in self.files]

    def read(self, since: int | None = None) -> list[Base | Version]:
        return list(read_log(self.listed(), self.files.__getitem__, since))

    def lose(self, *versions: int) -> None:
        for version in versions:
            del self.files[f"{version:020d}.json"]


def paths(state_files: object) -> list[str]:
    return sorted(path for path, _ in state_files)  # type: ignore[attr-defined]


def test_a_whole_log_is_read_version_by_version() -> None:
    log = Log()
    log.files |= {"_last_checkpoint": b"{}", "00000000000000000001.crc": b"{}", "x": b""}
    steps = log.read()
    assert [step.number for step in steps if isinstance(step, Version)] == [0, 1, 2, 3, 4]
    assert [step.timestamp_ms for step in steps] == [1000, 1001, 1002, 1003, 1004]
    last = steps[-1]
    assert isinstance(last, Version)
    assert last.actions == (add("c"),)
    assert last.digest == digest(log.files[f"{4:020d}.json"])
    assert paths(read_state(log.listed(), log.files.__getitem__).files) == ["b", "c"]
    assert paths(read_state(log.listed(), log.files.__getitem__, 2).files) == ["a", "b"]


def test_a_log_whose_beginning_is_gone_begins_with_its_oldest_usable_checkpoint() -> None:
    log = Log()
    log.checkpoint(2)
    log.checkpoint(3)
    log.lose(0, 1)
    steps = log.read()
    assert isinstance(steps[0], Base) and paths(steps[0].state.files) == ["a", "b"]
    assert steps[0].timestamp_ms == 1002
    assert [step.number for step in steps[1:] if isinstance(step, Version)] == [3, 4]


def test_the_commit_of_a_checkpoint_need_not_be_there() -> None:
    log = Log()
    log.checkpoint(2)
    log.lose(0, 1, 2)
    steps = log.read()
    assert isinstance(steps[0], Base) and steps[0].timestamp_ms == 4999
    assert [step.timestamp_ms for step in steps[1:]] == [1003, 1004]


def test_only_what_is_needed_since_a_version() -> None:
    log = Log()
    log.checkpoint(1)
    log.checkpoint(3)
    steps = log.read(since=3)
    assert isinstance(steps[0], Base) and steps[0].state.version == 3
    assert len(steps) == 2
    first = log.read(since=2)[0]
    assert isinstance(first, Base) and first.state.version == 1
    assert len(log.read(since=0)) == 5
    with pytest.raises(BadLog, match="version 9 is not there"):
        log.read(since=9)


def test_a_checkpoint_in_parts_counts_when_all_are_there() -> None:
    one, two = (f"{2:020d}.checkpoint.{part:010d}.{2:010d}.parquet" for part in (1, 2))
    assert listing([LogFile(one, 1)]).checkpoints == {}
    assert listing([LogFile(two, 1), LogFile(one, 1)]).checkpoints == {2: (one, two)}
    v2 = f"{2:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    assert listing([LogFile(v2, 1)]).checkpoints == {2: (v2,)}
    classic = f"{2:020d}.checkpoint.parquet"
    assert listing([LogFile(v2, 1), LogFile(classic, 1), LogFile(one, 1)]).checkpoints == {2: (classic,)}


@pytest.mark.parametrize(
    ("lost", "checkpoint", "message"),
    [
        ((0, 1), None, "version 1 cannot be made"),
        ((2,), None, "version 2 cannot be made"),
        ((4, 3, 2, 1, 0), None, "this is not a Delta log"),
        ((0, 3), 1, "version 3 cannot be made"),
    ],
)
def test_a_log_with_gaps_is_refused(lost: tuple[int, ...], checkpoint: int | None, message: str) -> None:
    log = Log()
    if checkpoint is not None:
        log.checkpoint(checkpoint)
    log.lose(*lost)
    with pytest.raises(BadLog, match=message):
        log.read()


def test_times_of_files_count_before_in_commit_timestamps_and_always_grow() -> None:
    plain = replace(META, configuration={})
    log = Log([[Protocol(1, 2), plain], [add("a")], [META, add("b")]])
    assert [step.timestamp_ms for step in log.read()] == [5000, 5001, 1002]


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([Protocol(3, 7, ("variantType",), ("variantType",)), META], "json: reader feature 'variantType'"),
        (
            [*CREATION, Add("a", {"day": None}, 1, 1, deletion_vector=DeletionVector("u", "x", 1, 1, 1))],
            "'a' has a deletion vector.*PURGE",
        ),
        ([*CREATION, Add("s3://b/a", {"day": None}, 1, 1)], "'s3://b/a' lies outside of the table"),
    ],
)
def test_what_cannot_be_carried_is_refused_where_it_shows(actions: list[Action], message: str) -> None:
    with pytest.raises(UnsupportedFeature, match=message):
        Log([actions]).read()


def test_a_log_that_begins_without_metadata_is_refused() -> None:
    with pytest.raises(BadLog, match="version 0 has no protocol and metaData"):
        Log([[add("a")]]).read()
