"""What each operation does, in words: one entry for each operation of the list of routes, and none beside.

A long module, for it is one list, and the order of the list is that of the documentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lakepact.server.openapi.pages import PAGES
from lakepact.server.openapi.tags import TAGS, Operation, Tag

__all__ = ["OPERATIONS", "TAGS", "Operation", "Tag"]


_SCHEMA_EXAMPLE: Final = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": "amount", "required": False, "type": "decimal(10, 2)"},
    ],
}
_ORDERS: Final = {"namespace": ["sales"], "name": "orders"}
_DELTA_SCHEMA: Final = {
    "type": "struct",
    "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
}
_DELTA_ADD: Final = {
    "add": {
        "path": "part-00000.parquet",
        "partitionValues": {},
        "size": 1024,
        "modificationTime": 1767225600000,
        "dataChange": True,
    }
}
_COMMENT: Final = {"action": "set-properties", "updates": {"comment": "checked"}}
_PAGED: Final = ("page-token", "page-size")

_STORED: Final = (406, 422)
"""A transaction that was refused gives its answer again, and its id may be the key of any change."""

OPERATIONS: Final[Mapping[str, Operation]] = {
    "getConfig": Operation(
        Tag.CONFIGURATION,
        "What this server offers",
        "Names the prefix of the warehouse, the separator of namespace levels, exactly the endpoints that are served, "
        "and how long an Idempotency-Key may be repeated.",
        {200: "Config"},
        refusals=(404,),
        parameters=("warehouse",),
    ),
    "listNamespaces": Operation(
        Tag.NAMESPACES,
        "List namespaces",
        "Those right below `parent`, or the topmost ones. Without a page token the answer is whole.",
        {200: "NamespaceList"},
        parameters=("parent", *_PAGED),
    ),
    "createNamespace": Operation(
        Tag.NAMESPACES,
        "Create a namespace",
        "Its parent must exist. The property `location`, if given, is where its tables go, and lies inside the "
        "warehouse.",
        {200: "Namespace"},
        body="NewNamespace",
        example={"namespace": ["sales"], "properties": {"owner": "finance"}},
        changes=True,
    ),
    "loadNamespaceMetadata": Operation(
        Tag.NAMESPACES, "Load a namespace", "Its levels and its properties.", {200: "Namespace"}
    ),
    "namespaceExists": Operation(
        Tag.NAMESPACES, "Whether a namespace exists", "204 if it does, 404 if not.", {204: None}
    ),
    "dropNamespace": Operation(
        Tag.NAMESPACES,
        "Drop a namespace",
        "Only an empty one. A creation that comes at the same moment either keeps it from being dropped or fails.",
        {204: None},
        changes=True,
    ),
    "updateProperties": Operation(
        Tag.NAMESPACES,
        "Change a namespace's properties",
        "Sets some and removes some, all at once. A property that is both set and removed is refused with 422.",
        {200: "PropertiesChanged"},
        refusals=(422,),
        body="PropertyChanges",
        example={"updates": {"owner": "controlling"}, "removals": ["note"]},
        changes=True,
    ),
    "listTables": Operation(
        Tag.TABLES,
        "List tables",
        "Of one namespace, without those below it. Without a page token the answer is whole.",
        {200: "IdentifierList"},
        parameters=_PAGED,
    ),
    "createTable": Operation(
        Tag.TABLES,
        "Create a table",
        "Columns get ids of the catalog's choice. With `stage-create` nothing is created: the answer is what the table "
        "would begin with, to be committed later with `assert-create`.",
        {200: "Table"},
        body="NewTable",
        example={"name": "orders", "schema": _SCHEMA_EXAMPLE},
        parameters=("access-delegation",),
        changes=True,
        headers=("ETag",),
    ),
    "loadTable": Operation(
        Tag.TABLES,
        "Load a table",
        "With `snapshots=refs` only the snapshots that a branch or tag names. 304 if the client has this version.",
        {200: "Table", 304: None},
        parameters=("snapshots", "if-none-match", "access-delegation"),
        headers=("ETag",),
    ),
    "loadCredentials": Operation(
        Tag.TABLES,
        "Credentials for a table's files",
        "Short-lived, for this table's location alone, to read or to write as the caller may. 406 if the warehouse has "
        "no provider of credentials, 403 if none can be made that reaches nothing else.",
        {200: "Credentials"},
        refusals=(403, 406),
    ),
    "signRequest": Operation(
        Tag.TABLES,
        "Sign a request to the table's storage",
        "For S3. The answer is the request in its one spelling, signed; send exactly that. Only requests for files of "
        "this table are signed, and for one who may read only those that read. A deletion of many objects is sent with "
        "its body. 406 if the warehouse signs nothing.",
        {200: "SignedRequest"},
        refusals=(403, 406),
        body="RequestToSign",
        example={
            "method": "GET",
            "region": "eu-central-1",
            "uri": "https://lake.s3.eu-central-1.amazonaws.com/sales/orders/data/00000.parquet",
            "headers": {"x-amz-content-sha256": ["UNSIGNED-PAYLOAD"]},
        },
    ),
    "tableExists": Operation(Tag.TABLES, "Whether a table exists", "204 if it does, 404 if not.", {204: None}),
    "updateTable": Operation(
        Tag.TABLES,
        "Commit to a table",
        "Makes the updates, in order, if all requirements hold on the table as it is now; a table that has moved since "
        "the client looked is no obstacle in itself. A refusal names every requirement that failed. A commit that "
        "comes a second time without a key is recognised by the snapshots it adds.",
        {200: "Table"},
        body="TableCommit",
        example={"requirements": [], "updates": [_COMMENT]},
        changes=True,
        headers=("ETag",),
    ),
    "dropTable": Operation(
        Tag.TABLES,
        "Drop a table",
        "No file is deleted in the request. With `purgeRequested` its files are marked, and go later.",
        {204: None},
        parameters=("purge-requested",),
        changes=True,
    ),
    "reportMetrics": Operation(
        Tag.TABLES,
        "Take in a report",
        "Reports are welcome and not kept, also for tables that are gone.",
        {204: None},
        body="Report",
        example={"report-type": "commit-report"},
    ),
    "unregisterTable": Operation(
        Tag.TABLES,
        "Take a table out of the catalog",
        "Its files stay as they are, so that another catalog can register it. Answers with its last version.",
        {200: "Table"},
        changes=True,
        headers=("ETag",),
    ),
    "registerTable": Operation(
        Tag.TABLES,
        "Register a table that has its files already",
        "The metadata file lies inside the warehouse and is checked in full. With `overwrite` it takes the place of "
        "the table of that name.",
        {200: "Table"},
        body="Registration",
        example={"name": "orders", "metadata-location": "s3://lake/orders/metadata/00003-x.metadata.json"},
        parameters=("access-delegation",),
        changes=True,
        headers=("ETag",),
    ),
    "renameTable": Operation(
        Tag.TABLES,
        "Rename a table",
        "Into another namespace too, if it exists. Files stay where they are.",
        {204: None},
        body="Renaming",
        example={"source": _ORDERS, "destination": {"namespace": ["archive"], "name": "orders_2025"}},
        changes=True,
    ),
    "undropTable": Operation(
        Tag.TABLES,
        "Restore a dropped table or view",
        "Of either format. Named by `id`, or by `identifier`: then the one that was dropped last under it. It comes "
        "back as it was, with all its history, under its name or as `destination`; a name that is taken is 409. "
        "Possible until its files are being deleted. Not inside a transaction.",
        {200: "Restored"},
        body="Undrop",
        example={"identifier": _ORDERS},
        changes=True,
    ),
    "listDropped": Operation(
        Tag.TABLES,
        "List what was dropped",
        "Tables and views of all namespaces that can come back, or whose files are being deleted. Without a page "
        "token the answer is whole.",
        {200: "DroppedList"},
        parameters=_PAGED,
    ),
    "listReachable": Operation(
        Tag.SERVER,
        "What files may be reachable from",
        "For the search for orphaned files: every table and view, what open transactions have staged and still see, "
        "and what was dropped, in pages. Not one instant: open transactions come first. Read it after listing files.",
        {200: "ReachableList"},
        parameters=("page-token",),
    ),
    "listReachableFiles": Operation(
        Tag.SERVER,
        "The files that a Delta table needs",
        "By the table's id: those of every version of the last `keep-ms`, and of open transactions.",
        {200: "ReachableFiles"},
        parameters=("keep-ms",),
    ),
    "listViews": Operation(
        Tag.VIEWS,
        "List views",
        "Of one namespace. Without a page token the answer is whole.",
        {200: "IdentifierList"},
        parameters=_PAGED,
    ),
    "createView": Operation(
        Tag.VIEWS,
        "Create a view",
        "With one version, of one or more SQL dialects, each named once.",
        {200: "View"},
        body="NewView",
        example={
            "name": "large_orders",
            "schema": _SCHEMA_EXAMPLE,
            "view-version": {
                "version-id": 1,
                "timestamp-ms": 1767225600000,
                "schema-id": 0,
                "summary": {"engine-name": "spark"},
                "representations": [
                    {"type": "sql", "sql": "SELECT * FROM orders WHERE amount > 1000", "dialect": "spark"}
                ],
                "default-namespace": ["sales"],
            },
        },
        changes=True,
    ),
    "loadView": Operation(Tag.VIEWS, "Load a view", "Its metadata, all versions included.", {200: "View"}),
    "viewExists": Operation(Tag.VIEWS, "Whether a view exists", "204 if it does, 404 if not.", {204: None}),
    "replaceView": Operation(
        Tag.VIEWS,
        "Commit to a view",
        "As a commit to a table, with updates of views.",
        {200: "View"},
        body="ViewCommit",
        example={"updates": [_COMMENT]},
        changes=True,
    ),
    "dropView": Operation(Tag.VIEWS, "Drop a view", "The view ends; its files stay.", {204: None}, changes=True),
    "registerView": Operation(
        Tag.VIEWS,
        "Register a view that has its metadata file already",
        "The file lies inside the warehouse.",
        {200: "View"},
        body="ViewRegistration",
        example={"name": "large_orders", "metadata-location": "s3://lake/large_orders/metadata/00000-x.metadata.json"},
        changes=True,
    ),
    "renameView": Operation(
        Tag.VIEWS,
        "Rename a view",
        "Into another namespace too, if it exists.",
        {204: None},
        body="Renaming",
        example={
            "source": {"namespace": ["sales"], "name": "large_orders"},
            "destination": {"namespace": ["sales"], "name": "big_orders"},
        },
        changes=True,
    ),
    "listDeltaTables": Operation(
        Tag.DELTA,
        "List Delta tables",
        "Of one namespace. Without a page token the answer is whole.",
        {200: "IdentifierList"},
        parameters=_PAGED,
    ),
    "createDeltaTable": Operation(
        Tag.DELTA,
        "Create a Delta table",
        "At version 0, with no files. `schema` is Delta's own (the same JSON as Spark's). Stores of documents have no "
        "Delta tables: then 406.",
        {200: "DeltaChanged"},
        refusals=(406,),
        body="NewDeltaTable",
        example={"name": "labels", "schema": _DELTA_SCHEMA, "partition-columns": []},
        changes=True,
    ),
    "loadDeltaTable": Operation(
        Tag.DELTA,
        "Load a Delta table",
        "As it is now, or as it was at a version or a time. With `files=true` all its live files are in the answer; "
        "inside a serializable transaction that is reading its rows, and what is added to it then conflicts with what "
        "others add.",
        {200: "DeltaTable"},
        refusals=(406,),
        parameters=("version", "timestamp-ms", "files"),
    ),
    "deltaTableExists": Operation(
        Tag.DELTA, "Whether a Delta table exists", "204 if it does, 404 if not.", {204: None}
    ),
    "commitDeltaTable": Operation(
        Tag.DELTA,
        "Commit to a Delta table",
        "Makes one more version of these actions. With `expected-version` the table must be at it. With `read-version` "
        "the change may go on past versions that do not concern it, by Delta's rules. A conflict names the table, what "
        "was expected and what is there. Inside a transaction what only adds, with neither, goes on at its commit.",
        {200: "DeltaChanged"},
        refusals=(406,),
        body="DeltaCommit",
        example={"expected-version": 0, "actions": [_DELTA_ADD]},
        changes=True,
    ),
    "dropDeltaTable": Operation(
        Tag.DELTA,
        "Drop a Delta table",
        "No file is deleted in the request. With `purgeRequested` its files are marked, and go later.",
        {204: None},
        parameters=("purge-requested",),
        changes=True,
    ),
    "loadDeltaHistory": Operation(
        Tag.DELTA,
        "The versions of a Delta table",
        "Newest first, below `before` if it is given.",
        {200: "DeltaHistory"},
        refusals=(406,),
        parameters=("before", "limit"),
    ),
    "importDeltaTable": Operation(
        Tag.DELTA,
        "Import a Delta table",
        "Makes a table of the log below `location`, which lies in the warehouse: the same versions at the same place. "
        "Sent again it goes on where it ended, or follows a log that has grown. Without `take-over` the table is "
        "read-only here. A log that is the mirror of a Lakepact catalog is refused, unless `recover` says that this "
        "catalog is lost and the table is to be managed here. With `dry-run` nothing is written, and the answer says "
        "what would be. Under a key it is done once: sent again it answers the same, with `parity` as it is now. Not "
        "inside a transaction.",
        {200: "DeltaImported"},
        refusals=(406,),
        body="DeltaImport",
        example={"location": "file:///data/warehouse/labels", "take-over": False, "dry-run": True},
        changes=True,
    ),
    "verifyDeltaTable": Operation(
        Tag.DELTA,
        "Compare a Delta table with its log",
        "Replays the log and compares versions, live files, metadata, protocol and application transactions with the "
        "store. Every difference is told, up to a thousand.",
        {200: "DeltaParity"},
        refusals=(406,),
    ),
    "mirrorDeltaTables": Operation(
        Tag.DELTA,
        "Bring mirrors up to date now",
        "Of the tables with these ids. They follow by themselves; this waits for them, and says how each came along.",
        {200: "Mirrored"},
        refusals=(406,),
        body="ToMirror",
        example={"tables": ["550e8400-e29b-41d4-a716-446655440000"]},
    ),
    "renameDeltaTable": Operation(
        Tag.DELTA,
        "Rename a Delta table",
        "Into another namespace too, if it exists. Files stay where they are.",
        {204: None},
        body="Renaming",
        example={"source": _ORDERS, "destination": {"namespace": ["archive"], "name": "orders_2025"}},
        changes=True,
    ),
    "commitTransaction": Operation(
        Tag.TRANSACTIONS,
        "Commit to many tables at once",
        "All of them change at one instant, or none does: no reader ever sees some. Tables may be created in the same "
        "commit. A table that is named without updates is a guard: its requirements hold at that instant too. A "
        "refusal names every failed requirement of every table. With `Prefer: return=representation` the answer is "
        "200 with the transaction's id and the new metadata locations. Delta tables go into `delta-changes` and "
        "move at the same instant. Where the server was started without "
        "multi-table transactions, more than one table is 406.",
        {200: "CommitsDone", 204: None},
        refusals=(406,),
        body="Commits",
        example={
            "table-changes": [
                {"identifier": _ORDERS, "requirements": [], "updates": [_COMMENT]},
                {
                    "identifier": {"namespace": ["sales"], "name": "lines"},
                    "requirements": [],
                    "updates": [_COMMENT],
                },
            ]
        },
        parameters=("prefer",),
        changes=True,
    ),
    "loadTransaction": Operation(
        Tag.TRANSACTIONS,
        "What became of a change",
        "Settles an unknown outcome: of an answer that was lost, of 500 and of 504. The id is the Idempotency-Key, or "
        "the one in `X-Lakepact-Transaction`. 404 means that it never happened, or that it is older than what is kept.",
        {200: "TransactionInFull"},
    ),
    "beginTransaction": Operation(
        Tag.TRANSACTIONS,
        "Begin a transaction",
        "Of many statements, by any engine. A client that uses the `warehouse` or the `prefix` of the answer works "
        "inside it: everything it reads is of one instant and has its own changes in it, and nobody else sees them "
        "before the commit. The Idempotency-Key, if given, becomes its id.",
        {200: "Transaction"},
        body="Beginning",
        body_required=False,
        example={"ttl-seconds": 600, "isolation": "serializable", "properties": {"job": "nightly"}},
        changes=True,
    ),
    "listTransactions": Operation(
        Tag.TRANSACTIONS,
        "List transactions",
        "Oldest first. A page may be short and still have a successor.",
        {200: "TransactionList"},
        parameters=("state", "since", *_PAGED),
    ),
    "prepareTransaction": Operation(
        Tag.TRANSACTIONS,
        "Prepare a transaction",
        "The first of two phases, for coordinators of several systems: everything the commit needs is held until then, "
        "or until the transaction expires.",
        {200: "Transaction"},
        refusals=_STORED,
        changes=True,
        takes_key=False,
    ),
    "publishTransaction": Operation(
        Tag.TRANSACTIONS,
        "Commit a transaction",
        "All that was staged becomes visible at one instant and with one timestamp, or none of it does: 409 names what "
        "has moved. Sent again, it gives the same answer again.",
        {200: "TransactionDone"},
        refusals=_STORED,
        body="Publishing",
        body_required=False,
        example={"source": {"pipeline": "nightly", "run": "42"}},
        changes=True,
        takes_key=False,
    ),
    "abortTransaction": Operation(
        Tag.TRANSACTIONS,
        "Give up a transaction",
        "Nothing that was staged is ever seen. Aborting twice is fine; a committed transaction is 400.",
        {200: "Transaction"},
        changes=True,
        takes_key=False,
    ),
    "renewTransaction": Operation(
        Tag.TRANSACTIONS,
        "Let a transaction live longer",
        "From now for `ttl-seconds`; never shorter than before.",
        {200: "Transaction"},
        body="Renewal",
        body_required=False,
        example={"ttl-seconds": 600},
        changes=True,
        takes_key=False,
    ),
    "reportRun": Operation(
        Tag.TRANSACTIONS,
        "Tell how a run went",
        "What a pipeline tells of its run once it has ended: stages, checks, inputs. Kept in the warehouse below "
        "`_catalog/runs/` for people to read; written once. It changes no table.",
        {204: None},
        refusals=(409,),
        body="RunReport",
        example={"pipeline": "shop", "run-id": "2026-01-01", "state": "committed", "seconds": 4.2, "stages": []},
    ),
    "loadState": Operation(
        Tag.TRANSACTIONS, "Read a small document", "As it is now, outside of a transaction.", {200: "State"}
    ),
    "loadStateInTransaction": Operation(
        Tag.TRANSACTIONS,
        "Read a small document in a transaction",
        "As of the transaction's instant, with its own changes; revision 0 and null if it never was.",
        {200: "State"},
    ),
    "putState": Operation(
        Tag.TRANSACTIONS,
        "Write a small document in a transaction",
        "It is committed with the tables, so a pipeline that keeps its position there never loses or repeats a step. "
        "With `revision` it is compared first: 409 if the document is at another. Without a value it is removed.",
        {200: "StateWritten"},
        body="NewState",
        example={"value": {"offset": 1042}, "revision": 3},
        changes=True,
    ),
    "batchLoadTables": Operation(
        Tag.TABLES,
        "Load many tables as of one instant",
        "No commit lies between any two of them.",
        {200: "Tables"},
        body="Identifiers",
        example={"identifiers": [_ORDERS, {"namespace": ["sales"], "name": "lines"}]},
    ),
    "getToken": Operation(
        Tag.ACCESS,
        "Get an access token",
        "For an API token, whose id and secret are `client_id` and `client_secret` (`client_credentials`), or in "
        "exchange for an access token that is about to expire. It needs no token, and its errors are OAuth's own.",
        {200: "AccessToken"},
        body="AccessTokenRequest",
        example={"grant_type": "client_credentials", "client_id": "abcdefghijklmnop", "client_secret": "a" * 52},
        body_media="application/x-www-form-urlencoded",
        form_errors=True,
    ),
    "whoAmI": Operation(
        Tag.ACCESS,
        "Who I am",
        "As this server sees the caller: by their token's claims or settings.",
        {200: "Principal"},
    ),
    "listTokens": Operation(
        Tag.ACCESS, "List API tokens", "Of the caller's account. For administrators.", {200: "ApiTokens"}
    ),
    "createToken": Operation(
        Tag.ACCESS,
        "Make an API token",
        "In the caller's account, for administrators. The secret is in this answer and nowhere afterwards: whoever "
        "loses the answer revokes the token and makes another.",
        {200: "NewApiToken"},
        body="ApiTokenRequest",
        example={"name": "loader", "groups": ["pipelines"], "expires-in-seconds": 7776000},
        changes=True,
        takes_key=False,
    ),
    "rotateToken": Operation(
        Tag.ACCESS,
        "Give an API token a new secret",
        "The old one counts for `grace-seconds` more, so that those who use it have time to change over.",
        {200: "NewApiToken"},
        refusals=(404,),
        body="Rotation",
        body_required=False,
        example={"grace-seconds": 3600},
        changes=True,
        takes_key=False,
    ),
    "revokeToken": Operation(
        Tag.ACCESS,
        "Revoke an API token",
        "Nobody is recognised by it any more, nor by any access token or session that was begun with it.",
        {204: None},
        refusals=(404,),
        changes=True,
        takes_key=False,
    ),
    "listGrants": Operation(
        Tag.RIGHTS,
        "List grants",
        "Those that count in this warehouse, and whoever asks may know of: on what they manage, and their own. A table "
        "is named as it is called now; one that is gone has only its id.",
        {200: "Grants"},
        parameters=("holder",),
    ),
    "addGrant": Operation(
        Tag.RIGHTS,
        "Give a role",
        "From the next request on, on every replica, the holder has this role there, and no other one that was given "
        "there before.",
        {200: "GrantChanged"},
        body="NewGrant",
        example={"holder": "group:analysts", "role": "read", "on": "namespace", "namespace": ["sales"]},
        changes=True,
    ),
    "removeGrant": Operation(
        Tag.RIGHTS,
        "Take a role away",
        "What the holder has on something above, or by a group, it keeps.",
        {200: "GrantChanged"},
        body="OldGrant",
        example={"holder": "user:ann", "on": "table", **_ORDERS},
        changes=True,
    ),
    "checkGrant": Operation(
        Tag.RIGHTS,
        "What somebody may do",
        "The best role that the holder has there, by whatever grant; without a holder, whoever asks. `allowed`: "
        "whether it includes `role`. Changes nothing.",
        {200: "GrantChecked"},
        body="GrantQuestion",
        example={"holder": "user:ann", "role": "write", "on": "table", **_ORDERS},
    ),
    "loadGovernance": Operation(
        Tag.RIGHTS,
        "What people say about a table or view",
        "Owner, description, tags, and whether it is protected from being dropped. Of any format.",
        {200: "Governance"},
    ),
    "putGovernance": Operation(
        Tag.RIGHTS,
        "Say something about a table or view",
        "Fields that are given are set, null sets them back, the others stay. A protected table can be neither dropped "
        "nor replaced until the protection is taken away.",
        {200: "Governance"},
        body="GovernanceFields",
        example={"owner": "finance", "tags": {"pii": "no"}, "protected": True},
        changes=True,
    ),
    "listAudit": Operation(
        Tag.RIGHTS,
        "Who did what",
        "The audit trail of the warehouse, the newest lines first: changes that were applied, denied or refused, and "
        "reads, where these are kept. What other processes have not written yet is missing for some seconds. A page "
        "may be short, even empty, and still have a successor: `next-page-token` is the `before` of that. A damaged "
        "line is left out and counted. Not inside a transaction.",
        {200: "AuditLines"},
        parameters=("principal", "operation", "outcome", "table", "before-moment", "limit"),
    ),
    "livez": Operation(Tag.SERVER, "Whether the process lives", "Restart it if this does not answer.", {200: "Alive"}),
    "readyz": Operation(
        Tag.SERVER,
        "Whether the server can serve",
        "503 with the reason if the store does not answer, or the server is stopping: send no traffic then.",
        {200: "Ready", 503: "Ready"},
    ),
    "health": Operation(Tag.SERVER, "What this server is", "Always 200, ready or not.", {200: "Health"}),
    "metrics": Operation(Tag.SERVER, "What was counted", "For Prometheus.", {200: "Text"}, media="text/plain"),
    "openapi": Operation(
        Tag.SERVER, "This description", "OpenAPI 3.1, made from the routes of this server.", {200: "Description"}
    ),
    "docs": Operation(
        Tag.SERVER, "This description as a page", "It needs no network.", {200: "Text"}, media="text/html"
    ),
    **PAGES,
}
