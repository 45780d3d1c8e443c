"""Runs queries in ClickHouse as a library, in a separate process, and prints the result of each as JSON.

python clickhouse_queries.py <query> …
"""

from __future__ import annotations

import json
import sys


def main(*queries: str) -> None:
    from chdb.session import Session

    session = Session()
    session.query("SET allow_experimental_database_iceberg = 1")
    results: list[dict[str, str]] = []
    for query in queries:
        try:
            results.append({"rows": str(session.query(query, "TSV")).strip()})
        except Exception as error:
            results.append({"error": str(error)})
    print(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
