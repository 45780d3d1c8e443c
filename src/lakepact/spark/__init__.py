"""Transactions from PySpark.

    import lakepact.spark as lp

    spark = lp.session("local[2]", uri="http://localhost:8181")
    lake = lp.connect(spark)
    with lake.transaction() as tx:
        tx.sql("MERGE INTO sales.customers …")
        tx.write(orders, "sales.orders")

lake.py          connect, and what a connected lake can do
transaction.py   a transaction with a session of its own inside it, and stages of it
statements.py    SQL, reads and writes; one that fails makes the transaction unfit
writers.py       how a frame becomes part of a table: one writer for each format
clones.py        the session inside; views.py: the user's temporary views in it; caches.py: after the publish
session.py       sessions; settings.py: as plain settings; runtimes.py: which connectors go with which Spark
errors.py, names.py

Knows the client and nothing of the server's code.
"""

from __future__ import annotations

try:
    import pyspark  # noqa: F401
except ImportError as error:
    from lakepact.extras import how_to_install

    raise ImportError(f"lakepact.spark needs PySpark: {how_to_install('spark')}", name="pyspark") from error

from lakepact.client import Conflict, Unavailable, Unknown
from lakepact.spark.errors import TransactionUnfit, UnsupportedFormat
from lakepact.spark.lake import SparkLake, connect
from lakepact.spark.session import configure, session
from lakepact.spark.settings import conf
from lakepact.spark.transaction import SparkTransaction, Stage
from lakepact.spark.writers import Mode, TableWriter

__all__ = [
    "Conflict",
    "Mode",
    "SparkLake",
    "SparkTransaction",
    "Stage",
    "TableWriter",
    "TransactionUnfit",
    "Unavailable",
    "Unknown",
    "UnsupportedFormat",
    "conf",
    "configure",
    "connect",
    "session",
]
