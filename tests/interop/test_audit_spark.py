"""The audit trail, read as anybody would who asks who did what: with Spark, from the warehouse."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.spark import Lake
from tests.wire.people import house, on_table
from tests.wire.world import set_properties, table_path


async def _busy_day(folder: Path) -> str:
    async with house(folder) as people:
        root, eve = people.root, people.eve
        await root.namespace()
        for name in ("t", "u"):
            await root.table(name)
        await root.grant("user:eve", "write", **on_table())
        for number in range(3):
            assert (await eve.commit([set_properties(a=str(number))])).status == 200
        assert (await eve.delete(table_path())).status == 403
        assert (await eve.get(table_path("u"))).status == 404
        assert (await eve.delete(table_path("u"))).status == 404
        return root.root


def test_spark_reads_who_did_what(lake: Lake, tmp_path: Path) -> None:
    warehouse = asyncio.run(_busy_day(tmp_path))
    trail = lake.spark.read.json(f"{warehouse}/_catalog/audit/*/*.jsonl")
    trail.createOrReplaceTempView("trail")
    told = lake.sql(
        "SELECT principal, operation, outcome, table, count(*) FROM trail LATERAL VIEW explode(tables) AS table "
        "WHERE principal = 'eve' GROUP BY ALL ORDER BY ALL"
    )
    assert told == [
        ("eve", "dropTable", "denied", "db.t", 1),
        ("eve", "dropTable", "denied", "db.u", 1),
        ("eve", "updateTable", "applied", "db.t", 3),
    ]
    [(first, last)] = lake.sql("SELECT min(`at-ms`), max(`at-ms`) FROM trail WHERE `transaction-id` IS NOT NULL")
    assert 0 < first <= last
    assert lake.one("SELECT detail.holder FROM trail WHERE operation = 'addGrant'") == "user:eve"
    lake.spark.catalog.dropTempView("trail")
