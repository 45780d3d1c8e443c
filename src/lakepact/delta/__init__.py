"""Delta tables: the actions of their log, what a table is after some of them, and what may happen side by side. No IO.

errors        what this package raises
actions       the values
fields, codec actions and the JSON of commit files, both ways
schema, engine_types
              schemas: reading, checking, growing; in the words of Arrow and DuckDB
protocol      what our tables have, what an import can carry, what a take-over changes
paths, partitions, stats
              what an action says of a data file
state         folding versions, and the changes of one transaction into one version
checks        whether a change fits its table
conflicts     whether a change may go on past others
checkpoint, log_reader
              the other files of a log, and reading a log that is there
transactions  several tables at once, in the shape of the guide
"""

from __future__ import annotations

from lakepact.delta.errors import (
    BadAction,
    BadLog,
    BadSchema,
    DeltaError,
    LimitExceeded,
    UnsupportedFeature,
    VersionConflict,
)
from lakepact.delta.transactions import (
    Backend,
    CommitResult,
    MirrorResult,
    MultiTableTransaction,
    MultiTableWriter,
    StagedTable,
    TransactionConfig,
)
from lakepact.errors import TransactionError

__all__ = [
    "Backend",
    "BadAction",
    "BadLog",
    "BadSchema",
    "CommitResult",
    "DeltaError",
    "LimitExceeded",
    "MirrorResult",
    "MultiTableTransaction",
    "MultiTableWriter",
    "StagedTable",
    "TransactionConfig",
    "TransactionError",
    "UnsupportedFeature",
    "VersionConflict",
]
