"""The documents of the API as JSON Schema. What is left open here is kept as the client sent it, not refused.

Requests are described as strictly as the server reads them; metadata in answers only as far as this server promises
it, since the rest is the Iceberg table specification's to say. A long module, for it is a list: documents refer to one
another by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

Schema: TypeAlias = dict[str, Any]


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def array(of: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": of, **more}


def document(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None, text: str = "") -> Schema:
    """An object that has these fields, and perhaps others."""
    schema: Schema = {"type": "object", "properties": {**required, **(optional or {})}}
    if required:
        schema["required"] = list(required)
    if text:
        schema["description"] = text
    return schema


def exactly(schema: Schema) -> Schema:
    """The same with no other fields."""
    return {**schema, "additionalProperties": False}


def nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


TEXT: Final[Schema] = {"type": "string"}
FILLED: Final[Schema] = {"type": "string", "minLength": 1}
BOOLEAN: Final[Schema] = {"type": "boolean"}
INT32: Final[Schema] = {"type": "integer", "format": "int32", "minimum": -(2**31), "maximum": 2**31 - 1}
INT64: Final[Schema] = {"type": "integer", "format": "int64", "minimum": -(2**63), "maximum": 2**63 - 1}
COUNT: Final[Schema] = {**INT64, "minimum": 0}
PROPERTIES: Final[Schema] = {"type": "object", "additionalProperties": TEXT}
UUID: Final[Schema] = {"type": "string", "pattern": "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"}
UUID7: Final[Schema] = {
    "type": "string",
    "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$",
}
LEVELS: Final[Schema] = array(FILLED, minItems=1)
_MANY_TEXTS: Final[Schema] = {"type": "object", "additionalProperties": array(TEXT)}
REF_KIND: Final[Schema] = {"type": "string", "enum": ["branch", "tag"]}

_HOLDER: Final[Schema] = {"type": "string", "pattern": "^(everyone|(user|group):.+)$", "maxLength": 300}
_ROLE: Final[Schema] = {"type": "string", "enum": ["read", "write", "create", "manage"]}
_GRANTED_ON: Final[Schema] = {"type": "string", "enum": ["account", "warehouse", "namespace", "table"]}
_GRANTED: Final[Mapping[str, Schema]] = {"namespace": LEVELS, "name": FILLED}

_SNAPSHOT: Final = document(
    {"snapshot-id": INT64, "timestamp-ms": INT64, "manifest-list": FILLED},
    {
        "parent-snapshot-id": INT64,
        "sequence-number": INT64,
        "schema-id": INT32,
        "summary": PROPERTIES,
        "first-row-id": COUNT,
        "added-rows": COUNT,
        "key-id": TEXT,
    },
    "A snapshot. Its id is random, which is how a commit that is sent again without a key is recognised.",
)
_STATISTICS: Final = document(
    {
        "snapshot-id": INT64,
        "statistics-path": FILLED,
        "file-size-in-bytes": INT64,
        "file-footer-size-in-bytes": INT64,
        "blob-metadata": array(
            document(
                {"type": TEXT, "snapshot-id": INT64, "sequence-number": INT64, "fields": array(INT32)},
                {"properties": PROPERTIES},
            )
        ),
    }
)
_PARTITION_STATISTICS: Final = document({"snapshot-id": INT64, "statistics-path": FILLED, "file-size-in-bytes": INT64})
_ENCRYPTION_KEY: Final = document(
    {"key-id": FILLED, "encrypted-key-metadata": {"type": "string", "contentEncoding": "base64"}},
    {"encrypted-by-id": TEXT, "properties": PROPERTIES},
)
_REF: Final = {
    "ref-name": FILLED,
    "type": REF_KIND,
    "snapshot-id": INT64,
}
_RETENTION: Final = {
    "max-ref-age-ms": {**INT64, "minimum": 1},
    "max-snapshot-age-ms": {**INT64, "minimum": 1},
    "min-snapshots-to-keep": {**INT32, "minimum": 1},
}

TABLE_UPDATES: Final[Mapping[str, Mapping[str, Schema]]] = {
    "assign-uuid": {"uuid": UUID},
    "upgrade-format-version": {"format-version": INT32},
    "add-schema": {"schema": ref("Schema")},
    "set-current-schema": {"schema-id": INT32},
    "remove-schemas": {"schema-ids": array(INT32)},
    "add-spec": {"spec": ref("PartitionSpec")},
    "set-default-spec": {"spec-id": INT32},
    "remove-partition-specs": {"spec-ids": array(INT32)},
    "add-sort-order": {"sort-order": ref("SortOrder")},
    "set-default-sort-order": {"sort-order-id": INT32},
    "add-snapshot": {"snapshot": ref("Snapshot")},
    "remove-snapshots": {"snapshot-ids": array(INT64)},
    "set-snapshot-ref": _REF,
    "remove-snapshot-ref": {"ref-name": FILLED},
    "set-location": {"location": FILLED},
    "set-properties": {"updates": PROPERTIES},
    "remove-properties": {"removals": array(TEXT)},
    "set-statistics": {"statistics": ref("Statistics")},
    "remove-statistics": {"snapshot-id": INT64},
    "set-partition-statistics": {"partition-statistics": _PARTITION_STATISTICS},
    "remove-partition-statistics": {"snapshot-id": INT64},
    "add-encryption-key": {"encryption-key": _ENCRYPTION_KEY},
    "remove-encryption-key": {"key-id": FILLED},
}
"""Every action on a table, and the fields it needs."""

VIEW_UPDATES: Final[Mapping[str, Mapping[str, Schema]]] = {
    "assign-uuid": {"uuid": UUID},
    "upgrade-format-version": {"format-version": INT32},
    "add-schema": {"schema": ref("Schema")},
    "set-location": {"location": FILLED},
    "set-properties": {"updates": PROPERTIES},
    "remove-properties": {"removals": array(TEXT)},
    "add-view-version": {"view-version": ref("ViewVersion")},
    "set-current-view-version": {"view-version-id": INT32},
}

TABLE_REQUIREMENTS: Final[Mapping[str, Mapping[str, Schema]]] = {
    "assert-create": {},
    "assert-table-uuid": {"uuid": TEXT},
    "assert-ref-snapshot-id": {"ref": TEXT, "snapshot-id": nullable(INT64)},
    "assert-last-assigned-field-id": {"last-assigned-field-id": INT32},
    "assert-current-schema-id": {"current-schema-id": INT32},
    "assert-last-assigned-partition-id": {"last-assigned-partition-id": INT32},
    "assert-default-spec-id": {"default-spec-id": INT32},
    "assert-default-sort-order-id": {"default-sort-order-id": INT32},
}
VIEW_REQUIREMENTS: Final[Mapping[str, Mapping[str, Schema]]] = {"assert-view-uuid": {"uuid": TEXT}}


_DELTA_CHANGE: Final = {
    "expected-version": COUNT,
    "read-version": COUNT,
    "statements": COUNT,
    "operation": TEXT,
    "operation-parameters": {"type": "object"},
}
_DELTA_ACTIONS: Final = array(
    {"type": "object", "minProperties": 1, "maxProperties": 1},
    description="Actions of a Delta log, each an object with one field: add, remove, metaData, txn, domainMetadata.",
)
DELTA_SCHEMAS: Final[Mapping[str, Schema]] = {
    "NewDeltaTable": document(
        {"name": FILLED, "schema": {"type": ["object", "string"]}},
        {
            "partition-columns": array(TEXT),
            "configuration": PROPERTIES,
            "location": TEXT,
            "description": TEXT,
            "mirrors": array({"enum": ["delta_log", "duckdb"]}),
        },
    ),
    "DeltaCommit": document(
        {"actions": _DELTA_ACTIONS},
        _DELTA_CHANGE,
        "Actions, in any order, that make the next version. Paths are relative to the table's location.",
    ),
    "NamedDeltaCommit": document(
        {"actions": _DELTA_ACTIONS},
        {"identifier": ref("Identifier"), "table-id": FILLED, **_DELTA_CHANGE},
        "A commit to the Delta table that `identifier` or `table-id` names.",
    ),
    "DeltaChanged": document(
        {
            "identifier": ref("Identifier"),
            "table-id": TEXT,
            "version": COUNT,
            "timestamp-ms": INT64,
            "metadata-location": TEXT,
        }
    ),
    "DeltaTable": document(
        {
            "identifier": ref("Identifier"),
            "table-id": TEXT,
            "location": TEXT,
            "version": COUNT,
            "timestamp-ms": INT64,
            "protocol": {"type": "object"},
            "metadata": {"type": "object"},
        },
        {
            "transactions": {"type": "object"},
            "domains": {"type": "object"},
            "statements": COUNT,
            "files": array({"type": "object"}),
        },
    ),
    "DeltaImport": document({"location": FILLED}, {"take-over": BOOLEAN, "dry-run": BOOLEAN, "recover": BOOLEAN}),
    "DeltaImported": document(
        {
            "identifier": ref("Identifier"),
            "table-id": {"type": ["string", "null"]},
            "location": TEXT,
            "dry-run": BOOLEAN,
            "version": INT64,
            "read-only": BOOLEAN,
            "first-version": {"type": ["integer", "null"]},
            "versions": COUNT,
            "files": COUNT,
            "size-bytes": COUNT,
            "rows": {"type": ["integer", "null"]},
            "dropped": array(TEXT),
            "problems": array(TEXT),
            "take-over-problems": array(TEXT),
        },
        {"timestamp-ms": {"type": ["integer", "null"]}, "parity": {"type": ["object", "null"]}},
        "What was imported now, or would be. `dropped` are fields of the log that no row has.",
    ),
    "DeltaParity": document(
        {
            "identifier": ref("Identifier"),
            "table-id": TEXT,
            "location": TEXT,
            "version": COUNT,
            "log-version": {"type": ["integer", "null"]},
            "first-version": {"type": ["integer", "null"]},
            "behind": COUNT,
            "files": COUNT,
            "equal": BOOLEAN,
            "difference-count": COUNT,
            "differences": array(TEXT),
        }
    ),
    "ToMirror": document({"tables": array(FILLED)}),
    "Mirrored": document({"results": {"type": "object"}}, None, "By table: engine, success, error and version."),
    "DeltaHistory": document(
        {"versions": array(document({"version": COUNT, "timestamp-ms": INT64, "transaction-id": TEXT}))}
    ),
}


def _one_of(word: str, kinds: Mapping[str, Mapping[str, Schema]], text: str) -> Schema:
    variants = []
    for name, fields in kinds.items():
        variant = document({word: {"const": name}, **fields}, _RETENTION if name == "set-snapshot-ref" else None)
        variants.append({"title": name, **variant})
    return {"description": text, "oneOf": variants}


def _commit(requirements: str, updates: str, *, named: bool, text: str) -> Schema:
    fields = {"requirements": array(ref(requirements)), "updates": array(ref(updates))}
    if named:
        return document({"identifier": ref("Identifier"), **fields}, None, text)
    return document(fields, {"identifier": ref("Identifier")}, text)


_KIND: Final = {"enum": ["table", "view", "delta"]}

_TRANSACTION: Final = {
    "transaction-id": UUID7,
    "state": {"enum": ["open", "preparing", "prepared", "committed", "aborted", "failed", "retryable"]},
    "isolation": {"enum": ["serializable", "snapshot"]},
    "principal": nullable(TEXT),
    "read-only": BOOLEAN,
    "warehouse": TEXT,
    "prefix": TEXT,
    "catalog-path": TEXT,
    "created-at": TEXT,
    "created-ms": INT64,
    "age-seconds": {"type": "number"},
    "expires-at": nullable(TEXT),
    "decided-at": nullable(TEXT),
    "decided-ms": nullable(INT64),
    "properties": PROPERTIES,
}

_STATES: Final = (
    "What became of a change. `committed`: all of it is visible. `failed`, `aborted`: none of it, for ever. "
    "`retryable`: none of it, and the same key may try again. Otherwise it is not decided yet."
)
_API_TOKEN: Final[Mapping[str, Schema]] = {
    "id": TEXT,
    "name": TEXT,
    "account": TEXT,
    "groups": array(TEXT),
    "admin": BOOLEAN,
    "created-at-ms": INT64,
    "expires-at-ms": nullable(INT64),
    "expired": BOOLEAN,
    "old-secret-until-ms": nullable(INT64),
}

SCHEMAS: Final[Mapping[str, Schema]] = {
    "Error": document(
        {
            "error": document(
                {"message": TEXT, "type": TEXT, "code": {"type": "integer", "minimum": 400, "maximum": 599}},
                {"failed-requirements": array(ref("FailedRequirement"))},
            )
        },
        None,
        "Every answer of 400 and above, except from the health checks. `type` is for programs: it does not change.",
    ),
    "FailedRequirement": document(
        {
            "identifier": ref("Identifier"),
            "requirement": {"type": "object"},
            "expected": {"type": "object"},
            "actual": {"type": "object"},
        },
        None,
        "A requirement that did not hold: of which table, what it asked for, and what is there.",
    ),
    "Identifier": document({"namespace": LEVELS, "name": FILLED}, None, "A table or view: namespace and name."),
    "Config": document(
        {
            "defaults": PROPERTIES,
            "overrides": PROPERTIES,
            "endpoints": array(TEXT),
            "idempotency-key-lifetime": {"type": "string", "pattern": "^PT"},
        }
    ),
    "NewNamespace": document({"namespace": LEVELS}, {"properties": PROPERTIES}),
    "Namespace": document({"namespace": LEVELS, "properties": PROPERTIES}),
    "NamespaceList": document({"namespaces": array(LEVELS)}, {"next-page-token": nullable(TEXT)}),
    "PropertyChanges": document({}, {"updates": PROPERTIES, "removals": array(TEXT)}),
    "PropertiesChanged": document({"updated": array(TEXT), "removed": array(TEXT), "missing": array(TEXT)}),
    "IdentifierList": document({"identifiers": array(ref("Identifier"))}, {"next-page-token": nullable(TEXT)}),
    "Type": {
        "description": "A type by name, such as `long`, `decimal(10, 2)` or `timestamptz`, or a nested one.",
        "anyOf": [FILLED, document({"type": {"enum": ["struct", "list", "map"]}})],
    },
    "Schema": document(
        {
            "type": {"const": "struct"},
            "fields": array(
                document({"id": INT32, "name": TEXT, "required": BOOLEAN, "type": ref("Type")}, {"doc": TEXT})
            ),
        },
        {"schema-id": INT32, "identifier-field-ids": array(INT32)},
    ),
    "PartitionSpec": document(
        {"fields": array(document({"name": FILLED, "transform": TEXT, "source-id": INT32}, {"field-id": INT32}))},
        {"spec-id": INT32},
    ),
    "SortOrder": document(
        {
            "fields": array(
                document(
                    {
                        "transform": TEXT,
                        "source-id": INT32,
                        "direction": {"enum": ["asc", "desc"]},
                        "null-order": {"enum": ["nulls-first", "nulls-last"]},
                    }
                )
            )
        },
        {"order-id": INT32},
    ),
    "Snapshot": _SNAPSHOT,
    "Statistics": _STATISTICS,
    "NewTable": document(
        {"name": FILLED, "schema": ref("Schema")},
        {
            "location": TEXT,
            "partition-spec": ref("PartitionSpec"),
            "write-order": ref("SortOrder"),
            "properties": PROPERTIES,
            "stage-create": BOOLEAN,
        },
    ),
    "Registration": document({"name": FILLED, "metadata-location": FILLED}, {"overwrite": BOOLEAN}),
    "Undrop": document(
        {}, {"identifier": ref("Identifier"), "id": FILLED, "destination": ref("Identifier")}, "One of the first two."
    ),
    "Restored": document(
        {"id": TEXT, "kind": _KIND, "identifier": ref("Identifier"), "location": TEXT, "metadata-location": TEXT}
    ),
    "DroppedList": document({"dropped": array(ref("Dropped"))}, {"next-page-token": nullable(TEXT)}),
    "Dropped": document(
        {
            "id": TEXT,
            "kind": _KIND,
            "format": {"enum": ["iceberg", "delta"]},
            "identifier": ref("Identifier"),
            "location": TEXT,
            "metadata-location": TEXT,
            "dropped-ms": INT64,
            "retained-until-ms": INT64,
            "purge": BOOLEAN,
            "state": {"enum": ["restorable", "expired", "released", "purging"]},
        }
    ),
    "ReachableList": document(
        {
            "root": TEXT,
            "now-ms": INT64,
            "longest-transaction-ms": COUNT,
            "reachable": array(ref("Reachable")),
        },
        {"next-page-token": nullable(TEXT)},
    ),
    "Reachable": document(
        {
            "why": {"enum": ["live", "pinned", "staged", "dropped", "released", "mirrored", "purging"]},
            "kind": _KIND,
            "id": TEXT,
            "name": nullable(TEXT),
            "location": TEXT,
            "metadata-location": nullable(TEXT),
            "version": {"type": ["integer", "null"]},
            "transaction-id": nullable(TEXT),
            "search": BOOLEAN,
        }
    ),
    "ReachableFiles": document({"files": array(TEXT)}, None, "As the adds of Delta's log write them."),
    "Renaming": document({"source": ref("Identifier"), "destination": ref("Identifier")}),
    "TableMetadata": document(
        {
            "format-version": {"type": "integer", "minimum": 1, "maximum": 3},
            "table-uuid": TEXT,
            "location": TEXT,
            "last-updated-ms": INT64,
            "last-column-id": INT32,
        },
        None,
        "Table metadata as the Iceberg table specification has it, byte for byte as it is in its file.",
    ),
    "Table": document(
        {"metadata": ref("TableMetadata")},
        {
            "metadata-location": TEXT,
            "config": PROPERTIES,
            "storage-credentials": array(ref("StorageCredential")),
            "remote-signing-config": document({}, {"properties": PROPERTIES, "headers": _MANY_TEXTS}),
        },
        "A table. One that is only staged has no `metadata-location`.",
    ),
    "StorageCredential": document(
        {"prefix": TEXT, "config": PROPERTIES},
        text="What reaches the files whose locations begin with `prefix`. Of several, the longest prefix counts.",
    ),
    "Credentials": document({"storage-credentials": array(ref("StorageCredential"))}),
    "RequestToSign": document(
        {"method": FILLED, "region": FILLED, "uri": FILLED, "headers": _MANY_TEXTS},
        {"body": nullable(TEXT), "properties": PROPERTIES, "provider": nullable(TEXT)},
        "A request to S3 that the client would like to make.",
    ),
    "SignedRequest": document({"uri": TEXT, "headers": _MANY_TEXTS}, text="The request to make instead."),
    "TableRequirement": _one_of("type", TABLE_REQUIREMENTS, "What must hold of the table when the commit happens."),
    "TableUpdate": _one_of(
        "action",
        TABLE_UPDATES,
        "One change of a table. `-1` as an id means the one this commit has added last. `add-partition-spec` is "
        "understood as `add-spec`. An action that is not listed is refused, before anything else is looked at.",
    ),
    "TableCommit": _commit(
        "TableRequirement",
        "TableUpdate",
        named=False,
        text="Updates, made in order if every requirement holds. The identifier, if given, is that of the path.",
    ),
    "NamedTableCommit": _commit(
        "TableRequirement", "TableUpdate", named=True, text="A commit to the table, or the creation of it."
    ),
    "Commits": document(
        {"table-changes": array(ref("NamedTableCommit"))},
        {"delta-changes": array(ref("NamedDeltaCommit"))},
        "Commits to several tables, each named once. With `assert-create` a table is created.",
    ),
    "CommitsDone": document(
        {
            "commit-id": UUID7,
            "results": array(document({"identifier": ref("Identifier"), "metadata-location": TEXT})),
        },
        None,
        "What a commit of many tables has done; `commit-id` is the id of its transaction.",
    ),
    **DELTA_SCHEMAS,
    "Report": {"type": "object", "description": "A scan or commit report, in whatever form."},
    "ViewVersion": document(
        {
            "version-id": INT32,
            "timestamp-ms": INT64,
            "schema-id": INT32,
            "summary": PROPERTIES,
            "representations": array(document({"type": FILLED, "sql": TEXT, "dialect": FILLED})),
            "default-namespace": array(TEXT),
        },
        {"default-catalog": TEXT},
    ),
    "NewView": document(
        {"name": FILLED, "schema": ref("Schema"), "view-version": ref("ViewVersion")},
        {"location": TEXT, "properties": PROPERTIES},
    ),
    "ViewMetadata": document(
        {
            "view-uuid": TEXT,
            "format-version": {"type": "integer", "minimum": 1},
            "location": TEXT,
            "current-version-id": INT32,
            "versions": array(ref("ViewVersion")),
        },
        None,
        "View metadata as the Iceberg view specification has it.",
    ),
    "View": document({"metadata-location": TEXT, "metadata": ref("ViewMetadata")}, {"config": PROPERTIES}),
    "ViewRequirement": _one_of("type", VIEW_REQUIREMENTS, "What must hold of the view when the commit happens."),
    "ViewUpdate": _one_of("action", VIEW_UPDATES, "One change of a view."),
    "ViewCommit": document(
        {"updates": array(ref("ViewUpdate"))},
        {"requirements": array(ref("ViewRequirement")), "identifier": ref("Identifier")},
    ),
    "ViewRegistration": document({"name": FILLED, "metadata-location": FILLED}),
    "Transaction": document(_TRANSACTION, None, _STATES),
    "TransactionInFull": document(
        {
            **_TRANSACTION,
            "changes": array(
                document(
                    {"cell": TEXT, "revision": COUNT},
                    {
                        "access": {"enum": ["write", "read"]},
                        "base": COUNT,
                        "identifier": ref("Identifier"),
                        "metadata-location": TEXT,
                    },
                )
            ),
        },
        {"operation": nullable(TEXT), "result": {"type": "object"}, "error": {"type": "object"}},
        "A transaction with what it changes and depends on, and what it came to.",
    ),
    "TransactionList": document({"transactions": array(ref("Transaction"))}, {"next-page-token": nullable(TEXT)}),
    "TransactionDone": document({"transaction-id": UUID7, "state": {"const": "committed"}}),
    "Beginning": exactly(
        document(
            {},
            {
                "ttl-seconds": {"type": "number", "exclusiveMinimum": 0},
                "isolation": {"enum": ["serializable", "snapshot"]},
                "properties": PROPERTIES,
                "read-only": BOOLEAN,
            },
        )
    ),
    "Publishing": document({}, {"source": {"type": "object"}}, "Who commits, for the receipts."),
    "RunReport": document(
        {"pipeline": FILLED, "run-id": FILLED, "state": FILLED},
        {
            "seconds": {"type": "number"},
            "stages": array({"type": "object"}),
            "checks": array({"type": "object"}),
            "inputs": array({"type": "object"}),
        },
        "How a run of a pipeline went.",
    ),
    "Renewal": exactly(document({}, {"ttl-seconds": {"type": "number", "exclusiveMinimum": 0}})),
    "State": document({"name": TEXT, "revision": COUNT, "value": nullable({"type": "object"})}),
    "NewState": document({}, {"value": nullable({"type": "object"}), "revision": nullable(INT64)}),
    "StateWritten": {"type": "object"},
    "Identifiers": document({"identifiers": array(ref("Identifier"))}),
    "Tables": document({"results": array({"type": "object"})}),
    "AccessTokenRequest": document(
        {"grant_type": TEXT},
        {
            "client_id": TEXT,
            "client_secret": TEXT,
            "scope": TEXT,
            "subject_token": TEXT,
            "subject_token_type": TEXT,
            "requested_token_type": TEXT,
        },
        "A form, for the grant `client_credentials` or `urn:ietf:params:oauth:grant-type:token-exchange`.",
    ),
    "AccessToken": document(
        {"access_token": TEXT, "token_type": {"const": "bearer"}, "expires_in": COUNT, "issued_token_type": TEXT}
    ),
    "OAuthError": document({"error": TEXT}, {"error_description": TEXT}),
    "Principal": document(
        {"name": nullable(TEXT), "account": TEXT, "groups": array(TEXT), "admin": BOOLEAN},
        None,
        "Without a name nobody was asked for one.",
    ),
    "ApiTokens": document({"tokens": array(document(_API_TOKEN))}),
    "NewApiToken": document(
        {**_API_TOKEN, "token": TEXT, "credential": TEXT},
        None,
        "With its secret, this once: as a bearer token, and as the credential of an OAuth client.",
    ),
    "ApiTokenRequest": document(
        {"name": FILLED},
        {
            "account": TEXT,
            "groups": array(FILLED),
            "admin": BOOLEAN,
            "expires-in-seconds": {"type": "number", "exclusiveMinimum": 0},
        },
    ),
    "Rotation": document({}, {"grace-seconds": {"type": "number", "minimum": 0}}),
    "Grants": document({"grants": array(document({"on": TEXT, "holder": TEXT, "role": TEXT}, {"id": TEXT}))}),
    "NewGrant": document({"holder": _HOLDER, "role": _ROLE, "on": _GRANTED_ON}, _GRANTED),
    "OldGrant": document({"holder": _HOLDER, "on": _GRANTED_ON}, _GRANTED),
    "GrantChanged": document({"on": TEXT, "holder": TEXT, "changed": BOOLEAN}, {"role": TEXT}),
    "GrantQuestion": document({"on": _GRANTED_ON}, {"holder": nullable(_HOLDER), "role": nullable(_ROLE), **_GRANTED}),
    "GrantChecked": document({"on": TEXT, "role": nullable(TEXT), "allowed": BOOLEAN}),
    "AuditLines": document(
        {"lines": array(ref("AuditLine")), "damaged": COUNT},
        {"next-page-token": nullable(TEXT)},
        "`damaged`: how many lines of the page cannot be read, and are left out.",
    ),
    "AuditLine": document(
        {
            "at-ms": INT64,
            "operation": TEXT,
            "outcome": TEXT,
            "tables": array(TEXT),
            "namespaces": array(TEXT),
        },
        {
            "format": INT32,
            "account": TEXT,
            "warehouse": TEXT,
            "principal": nullable(TEXT),
            "transaction-id": nullable(TEXT),
            "reason": nullable(TEXT),
            "client": nullable(TEXT),
            "detail": nullable(PROPERTIES),
        },
        "A line of the audit trail, as it was written.",
    ),
    "Governance": document(
        {"owner": nullable(TEXT), "description": nullable(TEXT), "tags": PROPERTIES, "protected": BOOLEAN}
    ),
    "GovernanceFields": exactly(
        document(
            {},
            {
                "owner": nullable({**TEXT, "maxLength": 300}),
                "description": nullable({**TEXT, "maxLength": 20_000}),
                "tags": nullable({**PROPERTIES, "maxProperties": 100}),
                "protected": nullable(BOOLEAN),
            },
        )
    ),
    "Text": TEXT,
    "Description": document({"openapi": TEXT, "paths": {"type": "object"}}),
    "Alive": document({"alive": {"const": True}}),
    "Ready": document({"ready": BOOLEAN}, {"reason": TEXT}),
    "Health": document({"version": TEXT, "store": TEXT, "ready": BOOLEAN}, {"warehouses": array(TEXT), "reason": TEXT}),
}
