"""Delta: what is written is read, one version stands for many changes, and what goes on past others changes nothing."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from lakepact.delta import codec, engine_types
from lakepact.delta import schema as schemas
from lakepact.delta.actions import (
    Action,
    Add,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    FileKey,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from lakepact.delta.checkpoint import checkpoint_file, read_checkpoint
from lakepact.delta.conflicts import Reads, Rebase, check, summarize
from lakepact.delta.paths import decode_path, encode_path, partition_path, partition_values
from lakepact.delta.schema import Field, Primitive, Struct
from lakepact.delta.state import TableState, fold, replay
from lakepact.delta.stats import cut_maximum, cut_minimum, file_stats

text = st.text(st.characters(codec="utf-8"), max_size=12)
name = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
long = st.integers(-(2**63), 2**63 - 1)
count = st.integers(0, 2**63 - 1)
values = st.dictionaries(text, st.none() | text, max_size=3)
vectors = st.builds(DeletionVector, name, name, st.none() | st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1), count)
protocols = st.builds(Protocol, st.integers(1, 2), st.integers(1, 6)) | st.builds(
    Protocol, st.just(3), st.just(7), st.lists(name, max_size=3).map(tuple), st.lists(name, max_size=3).map(tuple)
)
metadatas = st.builds(
    Metadata,
    name,
    name,
    st.lists(text, max_size=3).map(tuple),
    st.dictionaries(text, text, max_size=3),
    st.none() | text,
    st.none() | text,
    st.none() | long,
)
adds = st.builds(
    Add, name, values, count, long, st.booleans(), st.none() | text, st.none() | values, st.none() | vectors,
    st.none() | long, st.none() | long,
)  # fmt: skip
removes = st.builds(Remove, name, long, st.booleans(), st.none() | values, st.none() | count, st.none() | vectors)
domains = st.builds(DomainMetadata, name, text, st.booleans())
actions = adds | removes | metadatas | protocols | st.builds(Txn, text, long, st.none() | long) | domains
json = st.recursive(st.none() | st.booleans() | long | text, lambda inner: st.dictionaries(text, inner, max_size=3))
infos = st.builds(
    CommitInfo,
    long,
    text,
    # A log holds texts; what is none is written as one.
    st.dictionaries(text, st.none() | text, max_size=3),
    st.dictionaries(
        text.filter(lambda key: key not in ("inCommitTimestamp", "timestamp", "operation", "operationParameters")),
        # A field without a value is left out.
        json.filter(lambda value: value is not None),
        max_size=3,
    ),
)


def distinct(found: Sequence[Action]) -> list[Action]:
    """As many of these as may stand together in one version."""
    kept: dict[object, Action] = {}
    for one in found:
        match one:
            case Add() | Remove():
                kept.setdefault(("file", one.key), one)
            case Txn():
                kept.setdefault(("txn", one.app_id), one)
            case DomainMetadata():
                kept.setdefault(("domain", one.domain), one)
            case _:
                kept.setdefault(type(one), one)
    return list(kept.values())


versions = st.lists(actions, max_size=8).map(distinct)


@given(versions, infos, st.randoms(use_true_random=False))
def test_a_commit_file_says_what_it_was_made_from_in_one_way(
    found: list[Action], info: CommitInfo, rng: object
) -> None:
    file = codec.commit_file(found, info)
    shuffled = list(found)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert codec.commit_file(shuffled, info) == file
    parsed = codec.parse_commit(file)
    assert list(parsed.actions) == codec.sorted_actions(found)
    assert (parsed.info, parsed.dropped) == (info, ())
    assert codec.commit_file(parsed.actions, info) == file


def same_table(one: TableState, two: TableState) -> bool:
    """Equal for every reader: tombstones are for collectors."""
    return replace(one, tombstones={}) == replace(two, tombstones={})


# --- several changes as one version ---

BASE_META = Metadata(
    "m", schemas.dump(Struct((Field("id", Primitive("long")), Field("p", Primitive("string"))))), ("p",)
)
PARTITIONS = ("x", "y")


def a_file(number: int, *, data_change: bool = True, size: int = 1) -> Add:
    return Add(f"f{number}", {"p": PARTITIONS[number % 2]}, size, 1, data_change)


def gone(add: Add, *, data_change: bool = True) -> Remove:
    return Remove(add.path, 2, data_change, add.partition_values, add.size)


numbers = st.integers(0, 7)
moves = st.one_of(
    st.builds(lambda number, size: a_file(number, size=size), numbers, st.integers(1, 3)),
    st.builds(lambda number: gone(a_file(number)), numbers),
    st.builds(Txn, st.sampled_from("ab"), st.integers(0, 3)),
    st.builds(DomainMetadata, st.sampled_from("ab"), st.sampled_from("xy"), st.booleans()),
    st.builds(lambda title: replace(BASE_META, name=title), st.sampled_from("xy")),
    st.just(Protocol(1, 2)),
)
statements = st.lists(st.lists(moves, max_size=4).map(distinct), max_size=5)


@given(st.sets(numbers), statements)
def test_changes_folded_into_one_version_make_the_same_table(there: set[int], found: list[list[Action]]) -> None:
    base = replay([[Protocol(1, 1), BASE_META, *(a_file(number) for number in sorted(there))]])
    one_by_one = replay(found, base)
    folded = fold(found, base.files)
    at_once = replay([folded], base)
    assert same_table(replace(at_once, version=0), replace(one_by_one, version=0))
    # And it is a version: no two actions for one thing.
    assert len(codec.sorted_actions(folded)) == len(folded)


# --- past others ---


@dataclass(frozen=True)
class Append:
    files: tuple[int, ...]

    def plan(self, live: Mapping[FileKey, Add]) -> tuple[list[Action], Reads]:
        return [a_file(number) for number in self.files], Reads()


@dataclass(frozen=True)
class Overwrite:
    """Delete what is in a partition (or in all), and write something that depends on what was there."""

    partition: str | None
    file: int | None

    def plan(self, live: Mapping[FileKey, Add]) -> tuple[list[Action], Reads]:
        old = [add for add in live.values() if self.partition in (None, add.partition_values["p"])]
        new = [] if self.file is None else [a_file(self.file, size=1 + sum(add.size for add in old))]
        reads = Reads(everything=True) if self.partition is None else Reads(partitions=({"p": self.partition},))
        return [*map(gone, old), *new], reads


@dataclass(frozen=True)
class Compact:
    """Rearrange some files of a partition, if they are there."""

    files: tuple[int, ...]
    into: int

    def plan(self, live: Mapping[FileKey, Add]) -> tuple[list[Action], Reads]:
        old = [live[a_file(number).key] for number in self.files if a_file(number).key in live]
        if len(old) < len(self.files):
            return [], Reads(files=frozenset(add.key for add in old))
        new = a_file(self.into, data_change=False, size=sum(add.size for add in old))
        return [*(gone(add, data_change=False) for add in old), new], Reads(files=frozenset(add.key for add in old))


fresh = st.integers(8, 99)
plans = st.one_of(
    st.builds(Append, st.lists(fresh, max_size=2, unique=True).map(tuple)),
    st.builds(Overwrite, st.sampled_from([None, *PARTITIONS]), st.none() | fresh),
    st.builds(
        lambda files, into, side: Compact(tuple(2 * one + side for one in files), 2 * into + side),
        st.lists(st.integers(0, 3), min_size=1, max_size=2, unique=True),
        st.integers(4, 49),
        st.integers(0, 1),
    ),
)


@settings(max_examples=400)
@given(st.sets(numbers), st.lists(plans, max_size=3), plans)
def test_a_change_that_goes_on_past_others_makes_the_table_that_serial_execution_makes(
    there: set[int], others: list[Append | Overwrite | Compact], ours: Append | Overwrite | Compact
) -> None:
    state = replay([[Protocol(1, 1), BASE_META, *(a_file(number) for number in sorted(there))]])
    planned, reads = ours.plan(state.files)
    since = []
    for other in others:
        theirs, _ = other.plan(state.files)
        state = replay([distinct(theirs)], state)
        since.append((state.version, summarize(distinct(theirs))))
    decided = check(summarize(planned), reads, 0, since, schemas.parse(BASE_META.schema_string))
    if not isinstance(decided, Rebase):
        return
    assert decided.version == state.version + 1
    serial, _ = ours.plan(state.files)
    if isinstance(ours, Compact) and not planned:
        return  # There was nothing to do when it was planned; later there may be.
    assert same_table(replay([planned], state), replay([serial], state))


@given(st.lists(st.lists(numbers, max_size=2, unique=True), max_size=3))
def test_a_blind_append_goes_on_past_every_append_and_delete(others: list[list[int]]) -> None:
    since = [
        (1 + version, summarize([gone(a_file(one)) if one % 3 else a_file(one) for one in found]))
        for version, found in enumerate(others)
    ]
    assert check(summarize([a_file(50)]), Reads(), 0, since) == Rebase(len(others) + 1)


# --- files ---


@settings(max_examples=50, deadline=None)
@given(st.lists(versions, max_size=3), protocols, metadatas)
def test_a_checkpoint_is_the_state_but_for_removed_domains(
    found: list[list[Action]], protocol: Protocol, metadata: Metadata
) -> None:
    state = replay([[protocol, metadata], *found])
    file = checkpoint_file(state, tombstones_after_ms=-(2**63) - 1)
    read = read_checkpoint(state.version, [("x.parquet", file)]).state
    unchanged = {key: replace(add, data_change=False) for key, add in state.files.items()}
    assert same_table(read, replace(state, files=unchanged))
    assert read.tombstones.keys() == state.tombstones.keys()


@given(text, st.integers(1, 5))
def test_cut_strings_bound_what_they_were(found: str, length: int) -> None:
    most = cut_maximum(found, length)
    assert cut_minimum(found, length).encode() <= found.encode()
    assert most is None or (most.encode() >= found.encode() and len(most) <= length)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.none() | st.text(st.characters(codec="utf-8"), max_size=60), max_size=6), st.integers(1, 3))
def test_statistics_of_a_file_bound_every_row(found: list[str | None], group: int) -> None:
    table = pa.table({"s": pa.array(found, pa.string())})
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=group)
    footer = pq.read_metadata(io.BytesIO(sink.getvalue()))
    stats = orjson.loads(file_stats(footer, engine_types.from_arrow(table.schema)))
    assert stats["numRecords"] == len(found)
    assert stats["nullCount"] == {"s": found.count(None)}
    for row in found:
        if row is not None:
            assert stats["minValues"].get("s", "").encode() <= row.encode()
            assert "s" not in stats["maxValues"] or stats["maxValues"]["s"].encode() >= row.encode()


@given(st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda path: path[0] != "/"))
def test_a_path_survives_its_encoding(path: str) -> None:
    assert decode_path(encode_path(path)) == path
    assert encode_path(path).isascii()


# Spark escapes no NUL, and no file system takes it.
directory = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)


@given(directory, st.none() | directory.filter(lambda value: value != "__HIVE_DEFAULT_PARTITION__"))
def test_partition_directories_say_what_they_were_made_from(column: str, value: str | None) -> None:
    path = partition_path({column: value}, [column])
    assert path.count("/") == 0
    assert partition_values(f"{path}/x.parquet", [column]) == {column: value}
