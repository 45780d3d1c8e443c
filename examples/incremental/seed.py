"""Raw rows for the shop, a few of them wrong. Run it again for more of them."""

from __future__ import annotations

import os

import lakepact.spark as lp

ROWS = 1_000
ORDERS = f"""
    SELECT unix_micros(current_timestamp()) + id AS id,
           id % 50 AS customer_id,
           CASE WHEN id % 97 = 0 THEN NULL ELSE round(rand(7) * 60, 2) END AS amount,
           current_timestamp() - make_interval(0, 0, 0, CAST(id % 7 AS INT)) AS at
    FROM range({ROWS})
    UNION ALL
    SELECT unix_micros(current_timestamp()) - 1, 999, 10.0, current_timestamp()
"""
CUSTOMERS = """
    SELECT id,
           concat('customer ', id) AS name,
           element_at(array('Kyiv', 'Lima', 'Oslo'), CAST(id % 3 + 1 AS INT)) AS city,
           current_timestamp() AS at
    FROM range(50)
"""


def fill(lake: lp.SparkLake) -> None:
    with lake.transaction() as tx:
        tx.plain.namespaces.create("shop_raw", exist_ok=True)
        for name, query in (("shop_raw.orders", ORDERS), ("shop_raw.customers", CUSTOMERS)):
            there = tx.plain.tables.exists(name)
            tx.write(tx.sql(query), name, "append" if there else "create")


def main() -> None:
    uri = os.environ.get("LAKEPACT_URI", "http://127.0.0.1:8181")
    spark = lp.session("local[2]", uri=uri, jars=os.environ.get("LAKEPACT_JARS"))
    fill(lp.connect(spark))
    print("shop_raw.orders and shop_raw.customers have new rows, at one instant")
    spark.stop()


if __name__ == "__main__":
    main()
