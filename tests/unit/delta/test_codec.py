"""Commit files: the same version is the same bytes, what others wrote is read, and a client learns what is wrong."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from lakepact.delta import codec
from lakepact.delta.actions import (
    Action,
    Add,
    Cdc,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from lakepact.delta.errors import BadAction, BadLog, UnsupportedFeature
from tests.unit.delta.tables import CREATION, META, add, remove

INFO = CommitInfo(1_700_000_000_000, "WRITE", {"mode": "Append"}, {"txnId": "t", "isBlindAppend": True})
VECTOR = DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 4, 40, 6)


def lines(file: bytes) -> list[dict[str, Any]]:
    assert file.endswith(b"\n")
    return [orjson.loads(line) for line in file.splitlines()]


def test_the_order_of_a_file_does_not_depend_on_the_order_of_its_actions() -> None:
    actions: list[Action] = [
        add("b"),
        add("a"),
        remove("z"),
        remove("y"),
        DomainMetadata("d", "{}"),
        Txn("two", 2),
        Txn("one", 1),
        *CREATION,
    ]
    file = codec.commit_file(actions, INFO)
    assert file == codec.commit_file(reversed(actions), INFO)
    kinds = [next(iter(line)) for line in lines(file)]
    assert kinds == [
        "commitInfo",
        "protocol",
        "metaData",
        "txn",
        "txn",
        "domainMetadata",
        *["remove"] * 2,
        *["add"] * 2,
    ]
    assert [line["add"]["path"] for line in lines(file) if "add" in line] == ["a", "b"]
    assert codec.digest(file) == codec.digest(codec.commit_file(actions, INFO))


def test_parameters_of_an_operation_are_written_as_texts() -> None:
    parameters: dict[str, Any] = {
        "mode": "Append",
        "partitionBy": ["p", "q"],
        "none": None,
        "n": 5,
        "b": False,
        "o": {"k": []},
    }
    [info] = [
        line["commitInfo"]
        for line in lines(codec.commit_file([], CommitInfo(5, "WRITE", parameters)))
        if "commitInfo" in line
    ]
    assert info["operationParameters"] == {
        "mode": "Append",
        "partitionBy": '["p","q"]',
        "none": None,
        "n": "5",
        "b": "false",
        "o": '{"k":[]}',
    }


def test_a_file_is_these_bytes() -> None:
    info = CommitInfo(5, "WRITE", {}, {"txnId": "t"})
    file = codec.commit_file([Add("p=1/x", {"p": "1", "a": None}, 7, 8, True, '{"numRecords":1}')], info)
    assert file == (
        b'{"commitInfo":{"inCommitTimestamp":5,"timestamp":5,"operation":"WRITE","operationParameters":{},"txnId":"t"}}\n'
        b'{"add":{"path":"p=1/x","partitionValues":{"a":null,"p":"1"},"size":7,"modificationTime":8,"dataChange":true,'
        b'"stats":"{\\"numRecords\\":1}"}}\n'
    )


def test_the_first_line_has_the_in_commit_timestamp_first_and_keeps_what_is_free() -> None:
    [first, *_] = codec.commit_file(CREATION, INFO).splitlines()
    assert first.startswith(b'{"commitInfo":{"inCommitTimestamp":1700000000000,"timestamp":1700000000000,')
    parsed = codec.parse_commit(first)
    assert parsed.info == INFO
    assert parsed.in_commit_timestamp_ms == INFO.timestamp_ms


def test_what_has_a_place_of_its_own_cannot_be_given_once_more() -> None:
    with pytest.raises(BadAction, match="'inCommitTimestamp' has a place"):
        codec.commit_file([], CommitInfo(1, "WRITE", {}, {"inCommitTimestamp": 5}))


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([add("a"), add("a")], "at most one add of the file 'a'"),
        ([remove("a"), remove("a")], "at most one remove of the file 'a'"),
        ([add("a"), remove("a")], "both add and remove the same file: 'a'"),
        ([META, META], "at most one metaData"),
        ([Txn("x", 1), Txn("x", 2)], "txn of the application 'x'"),
        ([DomainMetadata("d", "1"), DomainMetadata("d", "2")], "domainMetadata of the domain 'd'"),
        ([Protocol(1, 2), Protocol(1, 2)], "at most one protocol"),
    ],
)
def test_what_may_not_stand_together_in_a_version_is_refused(actions: list[Action], message: str) -> None:
    with pytest.raises(BadAction, match=message):
        codec.commit_file(actions, INFO)


def test_a_new_deletion_vector_of_a_file_stands_beside_the_removal_of_the_old_one() -> None:
    new = Add("a", {}, 1, 1, True, deletion_vector=VECTOR)
    assert len(lines(codec.commit_file([new, Remove("a", 1)], INFO))) == 3


EVERY: list[Action] = [
    Add("a", {"p": None}, 1, 2, False, "{}", {"t": "v"}, VECTOR, 3, 4),
    Remove("a", 1, False, {"p": "1"}, 5, VECTOR),
    Metadata("i", '{"type":"struct","fields":[]}', ("p",), {"k": "v"}, "n", "d", 6),
    Protocol(3, 7, ("timestampNtz",), ("timestampNtz",)),
    Txn("app", 7, 8),
    DomainMetadata("d", "{}", True),
    Cdc("c", {}, 9),
]


@pytest.mark.parametrize("action", EVERY, ids=lambda one: type(one).__name__)
def test_every_field_that_is_written_is_read(action: Action) -> None:
    assert codec.parse_action(codec.action_json(action)) == action
    parsed = codec.parse_commit(codec.action_line(action))
    assert parsed.actions == (action,)
    assert parsed.dropped == ()


def test_a_remove_promises_extended_metadata_only_if_it_is_there() -> None:
    assert codec.action_json(remove("a"))["remove"]["extendedFileMetadata"] is True
    assert "extendedFileMetadata" not in codec.action_json(Remove("a", 1, True, {"p": "1"}))["remove"]


def test_what_is_left_out_of_the_logs_of_others_is_said() -> None:
    parsed = codec.parse_commit(
        b'{"commitInfo":{"timestamp":9,"operation":"MERGE","operationMetrics":{"n":"1"}}}\n'
        b'{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true,"clusteringProvider":"l"}}\n'
        b'{"remove":{"path":"b","dataChange":true,"stats":null}}\n'
        b'{"checkpointMetadata":{"version":1}}\n\n'
    )
    assert parsed.dropped == ("add.clusteringProvider", "checkpointMetadata")
    assert parsed.info == CommitInfo(9, "MERGE", {}, {"operationMetrics": {"n": "1"}})
    assert parsed.in_commit_timestamp_ms is None
    assert parsed.actions[1] == Remove("b", 0)


def test_a_log_that_cannot_be_read_says_where() -> None:
    with pytest.raises(BadLog, match=r"x\.json, line 2: not JSON"):
        codec.parse_commit(b'{"txn":{"appId":"a","version":1}}\n{"add":', "x.json")
    with pytest.raises(BadLog, match=r"x\.json, line 1: add: 'size' is missing"):
        codec.parse_commit(b'{"add":{"path":"a","partitionValues":{}}}', "x.json")
    with pytest.raises(BadLog, match="expected an object"):
        codec.parse_commit(b"[]")


def test_files_of_another_format_are_refused_by_name() -> None:
    document = codec.action_json(META)
    document["metaData"]["format"] = {"provider": "orc"}
    with pytest.raises(UnsupportedFeature, match="'orc'"):
        codec.parse_commit(orjson.dumps(document))


ADD = {"path": "a", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], r"actions\[0\]: expected an object"),
        ({}, r"actions\[0\]: expected one of add, cdc"),
        ({"add": {}, "remove": {}}, "found 2 keys"),
        ({"commitInfo": {}}, "unknown action 'commitInfo'"),
        ({"add": {**ADD, "colour": 1}}, "add: unknown field 'colour'"),
        ({"add": {**ADD, "size": "1"}}, "add: 'size' must be a whole number, found the string '1'"),
        ({"add": {**ADD, "size": True}}, "'size' must be a whole number, found a boolean"),
        ({"add": {**ADD, "size": -1}}, "'size' must be between 0"),
        ({"add": {**ADD, "size": 2**63}}, "'size' must be between 0"),
        ({"add": {**ADD, "partitionValues": {"p": 1}}}, "'partitionValues': the value of 'p' must be a string or null"),
        ({"add": {**ADD, "stats": {"numRecords": 1}}}, "'stats' must be a string, found an object"),
        ({"add": {**ADD, "stats": "{"}}, "'stats' must be JSON in a string"),
        ({"add": {**ADD, "stats": '{"numRecords":-1}'}}, "'stats': 'numRecords' must be between"),
        ({"add": {**ADD, "path": ""}}, "'path' must not be empty"),
        ({"add": {**ADD, "path": "/etc/passwd"}}, "relative to the table"),
        ({"add": {**ADD, "path": "s3://b/x"}}, "relative to the table"),
        ({"add": {**ADD, "path": "a/../../x"}}, r"'\.\.' parts"),
        ({"add": {**ADD, "path": "a/%2e%2E/x"}}, r"'\.\.' parts"),
        ({"add": {**ADD, "path": "_delta_log/x"}}, "in the log"),
        ({"add": {**ADD, "path": "a b"}}, "percent-encoded"),
        ({"add": {**ADD, "path": "é"}}, "percent-encoded"),
        ({"remove": {"path": "a", "dataChange": True}}, "'deletionTimestamp' is missing"),
        ({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2, "writerFeatures": []}}, "only with minWriter"),
        ({"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "readerFeatures": []}}, "only with minReader"),
        ({"txn": {"appId": "a"}}, "'version' is missing"),
        ({"domainMetadata": {"domain": "d", "configuration": {}}}, "'configuration' must be a string"),
    ],
)
def test_a_client_learns_which_field_is_wrong(document: object, message: str) -> None:
    with pytest.raises(BadAction, match=message):
        codec.parse_actions([document])


def test_actions_come_as_an_array() -> None:
    with pytest.raises(BadAction, match="expected an array"):
        codec.parse_actions({"add": ADD})
    assert codec.parse_actions([{"add": ADD}]) == (Add("a", {}, 1, 1),)
