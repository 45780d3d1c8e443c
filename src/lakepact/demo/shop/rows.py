"""What the shop has sold: made up, and the same every time."""

from __future__ import annotations

import random

from pyspark.sql import DataFrame, SparkSession

COUNTRIES = ("DE", "FR", "IT", "PL", "SE")


def customers(spark: SparkSession, count: int = 200) -> DataFrame:
    chance = random.Random(1)
    rows = [(number, f"customer {number}", chance.choice(COUNTRIES)) for number in range(1, count + 1)]
    return spark.createDataFrame(rows, "customer_id bigint, name string, country string")


def products(spark: SparkSession, count: int = 30) -> DataFrame:
    chance = random.Random(2)
    rows = [(number, f"product {number}", chance.randint(1, 90)) for number in range(1, count + 1)]
    return spark.createDataFrame(rows, "product_id bigint, product string, price bigint")


def orders(spark: SparkSession, first: int, count: int, *, wrong: int = 0) -> DataFrame:
    """Orders from this number on. The first `wrong` of them are returned goods somebody typed in as orders."""
    chance = random.Random(first)
    rows = [
        (
            number,
            chance.randint(1, 200),
            chance.randint(1, 30),
            -1 if number - first < wrong else chance.randint(1, 5),
            f"2026-01-{chance.randint(1, 28):02d}",
        )
        for number in range(first, first + count)
    ]
    return spark.createDataFrame(
        rows, "order_id bigint, customer_id bigint, product_id bigint, quantity bigint, day string"
    )
