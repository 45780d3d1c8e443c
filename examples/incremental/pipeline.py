"""A shop that grows: each run takes only the raw rows that came since the last one, and is one commit over five
tables, one of them a Delta table.

lakepact serve &
python examples/incremental/seed.py                                # some raw rows, a few of them wrong
lakepact graph examples/incremental/pipeline.py
lakepact run examples/incremental/pipeline.py                      # fails: an order of nobody. Nothing is published
lakepact run examples/incremental/pipeline.py --param strict=false # leaves such orders out. Everything is published
lakepact history shop.facts
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakepact import pipelines as dp

dp.pipeline("incremental", namespace="shop")

strict = dp.param("strict", True)


@dp.temporary_view
@dp.expect_or_drop("has an amount", "amount IS NOT NULL AND amount >= 0")
def new_orders() -> DataFrame:
    """Only what came since the last committed run. A run that fails takes nothing."""
    return dp.read_new("shop_raw.orders").withColumn("day", F.to_date("at"))


@dp.table(mode="merge", keys=["id"], comment="Who buys. The newest word about a customer counts.")
@dp.expect_unique("id")
@dp.expect_not_null("id", "name")
def customers() -> str:
    return "SELECT id, max_by(name, at) AS name, max_by(city, at) AS city FROM shop_raw.customers GROUP BY id"


@dp.table(partition_cols=["days(at)"], comment="One row an order, with what was known of its customer at the time.")
@dp.expect_references("customer_id", "customers", "id")
@dp.expect_unique("id")
def facts(new_orders: DataFrame, customers: DataFrame) -> DataFrame:
    known = customers.select(F.col("id").alias("customer_id"), "city")
    # A strict run keeps an order of nobody, and the check above fails it.
    return new_orders.join(known, "customer_id", "left" if strict else "inner")


@dp.materialized_view(comment="What was sold on each day.")
@dp.expect_rows(at_least=1)
def daily(facts: DataFrame) -> DataFrame:
    return facts.groupBy("day").agg(F.count("*").alias("orders"), F.sum("amount").alias("amount"))


@dp.materialized_view(comment="What is known of a customer, to learn from.")
def features(facts: DataFrame) -> DataFrame:
    return facts.groupBy("customer_id").agg(
        F.count("*").alias("orders"), F.avg("amount").alias("mean_amount"), F.max("day").alias("last_day")
    )


@dp.materialized_view(format="delta", comment="What is to be learned: who spends more than most.")
@dp.expect_references("customer_id", "features")
def labels(facts: DataFrame) -> DataFrame:
    spent = facts.groupBy("customer_id").agg(F.sum("amount").alias("spent"))
    return spent.select("customer_id", (F.col("spent") > 100).alias("spends_much"))


@dp.check("daily")
def adds_up(daily: DataFrame, facts: DataFrame) -> str:
    """The summary and the facts are of one commit, so they agree to the cent."""
    [summed], [counted] = daily.agg(F.sum("orders")).collect(), facts.agg(F.count("*")).collect()
    return "" if summed[0] == counted[0] else f"{summed[0]} orders in the summary, {counted[0]} in the facts"
