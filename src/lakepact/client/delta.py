"""Delta tables of the catalog, on main or inside a transaction: made, read, changed by actions of their log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from lakepact.client.caller import Caller
from lakepact.client.display import html_facts, html_rows
from lakepact.client.errors import Conflict, NotFound
from lakepact.client.names import (
    Identifier,
    Name,
    document_of,
    identifier_of,
    levels_segment,
    namespace_name,
    segment,
    shown,
    table_name,
)
from lakepact.delta.actions import Action, Add
from lakepact.delta.codec import action_json, parse_action
from lakepact.delta.errors import VersionConflict
from lakepact.delta.transactions import MirrorResult, MultiTableWriter, StagedTable

_MANY: Final = "{prefix}/transactions/commit"


@dataclass(frozen=True, slots=True)
class DeltaTable:
    """A Delta table at one version.

    table = lake.delta.load("ml.labels")
    table.version, [one.path for one in table.files]
    """

    identifier: Identifier
    """The levels of its namespace and its name: `("ml", "labels")`."""

    table_id: str
    """Its id, which stays when the table is renamed."""

    location: str
    """Where its files are."""

    version: int
    """The version that was loaded."""

    timestamp_ms: int
    """The in-commit timestamp of this version: the same for all tables of one commit."""

    metadata: Mapping[str, Any] = field(repr=False)
    """Delta's `metaData` action: id, schemaString, partitionColumns, configuration."""

    protocol: Mapping[str, Any] = field(repr=False)
    """Delta's `protocol` action: the features that readers and writers need."""

    transactions: Mapping[str, int] = field(default_factory=dict, repr=False)
    """How far applications have come (`txn`)."""

    statements: int = 0
    """How many statements of the transaction it was loaded in have changed it. They do not move its version."""

    files: tuple[Add, ...] = field(default=(), repr=False)
    """The live files, if they were asked for."""

    @property
    def name(self) -> str:
        """The name as people write it: `ml.labels`."""
        return shown(self.identifier)

    @property
    def schema_string(self) -> str:
        """Its columns, as Delta writes them: the JSON of Spark's `StructType`."""
        return str(self.metadata["schemaString"])

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns it is partitioned by."""
        return tuple(self.metadata["partitionColumns"])

    def _repr_html_(self) -> str:
        facts = {"format": "delta", "location": self.location, "version": self.version, "id": self.table_id}
        fields = orjson.loads(self.schema_string)["fields"]
        rows = ((one["name"], _type_text(one["type"]), "no" if one["nullable"] else "yes") for one in fields)
        return html_facts(self.name, facts) + html_rows("", ("column", "type", "required"), rows)


@dataclass(frozen=True, slots=True)
class DeltaChange:
    """The actions that make the next version of a table.

    lake.delta.commit(DeltaChange("ml.labels", [added], expected_version=0))
    """

    table: Name
    """The table to change."""

    actions: Sequence[Action]
    """Of `lakepact.delta.actions`: the files that come and go, and new metadata."""

    expected_version: int | None = None
    """The table must be at this version."""

    read_version: int | None = None
    """What the change was computed on. It goes on past versions that do not concern it, by Delta's rules."""

    statements: int | None = None
    """Inside a transaction: `statements` of the table that the change was computed on. Others make it a conflict."""

    operation: str = "WRITE"
    """What the history calls it."""

    parameters: Mapping[str, Any] = field(default_factory=dict)
    """What the history says about it."""

    def to_json(self) -> dict[str, Any]:
        """Return the change as the REST protocol writes it."""
        return {"identifier": document_of(table_name(self.table)), **_body(self)}


@dataclass(frozen=True, slots=True)
class DeltaVersion:
    """One version of a table's history: `lake.delta.history("ml.labels")`."""

    version: int
    """Its number."""

    timestamp_ms: int
    """When it was committed, in milliseconds since 1970."""

    transaction_id: str
    """The transaction that made it."""

    operation: str
    """What the writer called it."""

    added_files: int
    """How many files it added."""

    removed_files: int
    """How many files it removed."""


class DeltaTables:
    """Delta tables, on main (`lake.delta`) or inside a transaction (`tx.delta`).

    lake.delta.list("ml")
    lake.delta.load("ml.labels").version
    lake.read("ml.labels")  # its rows
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def list(self, namespace: Name) -> tuple[Identifier, ...]:
        """List the Delta tables of a namespace. Raises `NotFound` if there is no such namespace.

        lake.delta.list("ml")  # (("ml", "labels"),)
        """
        answer = self._caller.read(_tables(namespace_name(namespace))).json()
        return tuple(identifier_of(one) for one in answer["identifiers"])

    def create(
        self,
        name: Name,
        schema: str | Mapping[str, Any],
        *,
        partition_by: Iterable[str] = (),
        configuration: Mapping[str, str] | None = None,
        location: str | None = None,
        description: str | None = None,
        mirrors: Iterable[str] | None = None,
    ) -> DeltaTable:
        """Create an empty table at version 0. `schema` is Delta's, which is the JSON of Spark's `StructType`.

            fields = [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]
            lake.delta.create("ml.labels", {"type": "struct", "fields": fields})

        Raises `Unsupported` if the server keeps its metadata in documents: Delta tables need SQLite or PostgreSQL.
        """
        identifier = table_name(name)
        optional = {
            "location": location,
            "description": description,
            "mirrors": None if mirrors is None else list(mirrors),
        }
        body = {
            "name": identifier[-1],
            "schema": schema,
            "partition-columns": list(partition_by),
            "configuration": dict(configuration or {}),
            **{key: value for key, value in optional.items() if value is not None},
        }
        self._caller.change("POST", _tables(identifier[:-1]), body=body)
        return self.load(identifier, files=False)

    def load(
        self, name: Name, *, version: int | None = None, timestamp_ms: int | None = None, files: bool = True
    ) -> DeltaTable:
        """Load the table as it is now, or as it was at a version or a time. Raises `NotFound`.

        lake.delta.load("ml.labels", version=3).files
        """
        asked = {"files": "true" if files else "false", "version": version, "timestamp-ms": timestamp_ms}
        query = {key: str(value) for key, value in asked.items() if value is not None}
        return _loaded(self._caller.read(_table(table_name(name)), query=query).json())

    def exists(self, name: Name) -> bool:
        """Return whether there is a Delta table of this name.

        lake.delta.exists("ml.labels")
        """
        try:
            self._caller.read(_table(table_name(name)), method="HEAD")
        except NotFound:
            return False
        return True

    def history(self, name: Name, *, before: int | None = None, limit: int = 100) -> tuple[DeltaVersion, ...]:
        """Return the versions of a table, newest first.

        [one.operation for one in lake.delta.history("ml.labels", limit=10)]
        """
        query = {"limit": str(limit), **({} if before is None else {"before": str(before)})}
        answer = self._caller.read(f"{_table(table_name(name))}/history", query=query).json()
        return tuple(
            DeltaVersion(
                one["version"],
                one["timestamp-ms"],
                one["transaction-id"],
                one["operation"],
                one["added-files"],
                one["removed-files"],
            )
            for one in answer["versions"]
        )

    def commit(self, change: DeltaChange) -> int:
        """Commit the next version and return its number. Raises `Conflict` if the change does not fit newer versions.

        lake.delta.commit(DeltaChange("ml.labels", [added], expected_version=0))
        """
        answer = self._caller.change("POST", _table(table_name(change.table)), body=_body(change))
        return int(answer.json()["version"])

    def drop(self, name: Name, *, purge: bool = False) -> None:
        """Take the table out of the catalog. `purge` asks for its files to be deleted too.

        lake.delta.drop("ml.labels")
        """
        self._caller.change("DELETE", _table(table_name(name)), query={"purgeRequested": "true"} if purge else None)

    def rename(self, source: Name, target: Name) -> None:
        """Rename a table, into another namespace too. Raises `NotFound` and `AlreadyExists`.

        lake.delta.rename("ml.labels", "archive.labels")
        """
        body = {"source": document_of(table_name(source)), "destination": document_of(table_name(target))}
        self._caller.change("POST", "{prefix}/delta-tables/rename", body=body)

    def import_log(
        self, name: Name, location: str, *, take_over: bool = False, dry_run: bool = False, recover: bool = False
    ) -> Mapping[str, Any]:
        """Import the Delta log below `location`, which is inside the warehouse, or continue an import.

            lake.delta.import_log("ml.labels", "s3://lake/labels", dry_run=True)

        Returns what was done. With `dry_run` nothing is written, and the answer says what would be. Without
        `take_over` it is read-only.

        `recover` says that the Lakepact catalog that managed the table is lost; it is managed here from then on. While
        that catalog is alive this forks the table's log.
        """
        body = {"location": location, "take-over": take_over, "dry-run": dry_run}
        if recover:
            # Only then: a server that does not know the word is not asked for anything new.
            body["recover"] = True
        answer: Mapping[str, Any] = self._caller.change("POST", f"{_table(table_name(name))}/import", body=body).json()
        return answer

    def verify(self, name: Name) -> Mapping[str, Any]:
        """Compare the table with its log: `equal`, and all `differences`.

        lake.delta.verify("ml.labels")["equal"]
        """
        answer: Mapping[str, Any] = self._caller.read(f"{_table(table_name(name))}/verify").json()
        return answer

    def writer(self) -> MultiTableWriter:
        """Return a writer that commits a `lakepact.delta.MultiTableTransaction`: several tables by their ids.

        lake.delta.writer().commit(transaction)
        """
        return MultiTableWriter(_Backend(self._caller))


class _Backend:
    """What a `MultiTableWriter` writes with."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def commit(self, changes: Sequence[StagedTable], transaction_id: str, timeout_secs: float) -> Mapping[str, int]:
        body = {
            "delta-changes": [
                {
                    "table-id": one.table_id,
                    "expected-version": one.expected_version,
                    "actions": [action_json(action) for action in one.actions],
                }
                for one in changes
            ]
        }
        try:
            answer = self._caller.within(timeout_secs).change(
                "POST", _MANY, body=body, key=transaction_id, headers={"Prefer": "return=representation"}
            )
        except Conflict as conflict:
            for one in conflict.details.get("version-conflicts", ()):
                raise VersionConflict(one["table-id"], one["expected"], one["actual"]) from conflict
            raise
        return {one["table-id"]: one["version"] for one in answer.json()["results"]}

    def mirror(
        self, versions: Mapping[str, int], transaction_id: str, timeout_secs: float
    ) -> Mapping[str, Sequence[MirrorResult]]:
        body = {"tables": list(versions)}
        caller = self._caller.within(timeout_secs)
        answer = caller.read("{prefix}/delta-tables/mirror", body=body, method="POST").json()
        return {
            table_id: [MirrorResult(one["engine"], one["success"], one.get("error")) for one in results]
            for table_id, results in answer["results"].items()
        }


def _body(change: DeltaChange) -> dict[str, Any]:
    optional = {
        "expected-version": change.expected_version,
        "read-version": change.read_version,
        "statements": change.statements,
    }
    return {
        "actions": [action_json(action) for action in change.actions],
        "operation": change.operation,
        "operation-parameters": dict(change.parameters),
        **{key: value for key, value in optional.items() if value is not None},
    }


def _loaded(answer: Mapping[str, Any]) -> DeltaTable:
    files = [parse_action(one) for one in answer.get("files", ())]
    return DeltaTable(
        identifier_of(answer["identifier"]),
        answer["table-id"],
        answer["location"],
        answer["version"],
        answer["timestamp-ms"],
        answer["metadata"],
        answer["protocol"],
        answer.get("transactions", {}),
        answer.get("statements", 0),
        tuple(one for one in files if isinstance(one, Add)),
    )


def _type_text(type_: Any) -> str:
    return type_ if isinstance(type_, str) else str(type_["type"])


def _tables(namespace: Identifier) -> str:
    return f"{{prefix}}/namespaces/{levels_segment(namespace)}/delta-tables"


def _table(identifier: Identifier) -> str:
    return f"{_tables(identifier[:-1])}/{segment(identifier[-1])}"
