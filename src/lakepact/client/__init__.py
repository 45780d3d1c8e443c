"""The Python client: namespaces, tables, and transactions over many of them, over HTTP.

lake.py          connect, and what a connected catalog can do
transaction.py   a transaction as a block; heartbeat.py keeps it alive
transactions.py  transactions by their ids: begin, get, list, commit, abort, renew
audit.py         who did what; grants.py: who may do what
tables.py        tables as plain metadata, and cuts of several; namespaces.py; state.py: users' documents
pyiceberg.py     PyIceberg on top; frames.py: rows as Arrow, pandas, Polars and DuckDB; display.py: HTML for notebooks
runs.py          a function in a transaction, repeated after conflicts and outages; outages.py: waiting for a server
caller.py        requests, repeated under one key until there is an outcome; http.py, machine.py below it
errors.py        refused, unavailable, unknown: the tree
names.py         "sales.orders" or ("sales", "orders")

Knows nothing of the server's code: what it says is in `docs/rest.md`, and all of it goes over the wire.
"""

from __future__ import annotations

from lakepact.client.audit import AuditLines
from lakepact.client.delta import DeltaChange, DeltaTable, DeltaVersion
from lakepact.client.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Forbidden,
    NotEmpty,
    NotFound,
    Refused,
    TransactionClosed,
    Unauthorized,
    Unavailable,
    Unknown,
    Unsupported,
)
from lakepact.client.grants import On
from lakepact.client.lake import Committed, Lake, TableChange, connect
from lakepact.client.machine import Retry, new_key
from lakepact.client.names import Identifier, Name
from lakepact.client.place import Place
from lakepact.client.state import Document
from lakepact.client.tables import Cut, LoadedTable
from lakepact.client.transaction import Transaction
from lakepact.client.transactions import Change, Published, TransactionInfo

__all__ = [
    "AlreadyExists",
    "AuditLines",
    "BadRequest",
    "Change",
    "Committed",
    "Conflict",
    "Cut",
    "DeltaChange",
    "DeltaTable",
    "DeltaVersion",
    "Document",
    "Forbidden",
    "Identifier",
    "Lake",
    "LoadedTable",
    "Name",
    "NotEmpty",
    "NotFound",
    "On",
    "Place",
    "Published",
    "Refused",
    "Retry",
    "TableChange",
    "Transaction",
    "TransactionClosed",
    "TransactionInfo",
    "Unauthorized",
    "Unavailable",
    "Unknown",
    "Unsupported",
    "connect",
    "new_key",
]
