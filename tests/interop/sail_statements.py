"""Runs SQL statements in Sail against a catalog, in a separate process. Prints the rows of the last one as JSON.

python sail_statements.py <catalog uri> <warehouse> <statement> …
"""

from __future__ import annotations

import json
import os
import sys


def main(uri: str, warehouse: str, *statements: str) -> None:
    os.environ["SAIL_CATALOG__LIST"] = f'[{{name="lake", type="iceberg-rest", uri="{uri}", warehouse="{warehouse}"}}]'
    os.environ["SAIL_CATALOG__DEFAULT_CATALOG"] = "lake"
    # After the environment is set: Sail reads it when it is loaded.
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    _, port = server.listening_address
    spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    rows = [spark.sql(statement).collect() for statement in statements]
    print(json.dumps([list(row) for row in rows[-1]]))
    spark.stop()
    server.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
