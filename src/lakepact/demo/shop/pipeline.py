"""A shop's pipeline: raw orders to facts, dimensions, a daily summary, and features with their labels.

Copy it, change it, run it: `lakepact run pipeline.py`. All its tables become visible at one instant, or none does.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakepact import pipelines as dp

dp.pipeline(name="shop", namespace="shop")


@dp.materialized_view
@dp.expect_unique("customer_id")
@dp.expect_not_null("customer_id", "country")
def customers(raw_customers: DataFrame) -> DataFrame:
    """Who buys."""
    return raw_customers.dropDuplicates(["customer_id"])


@dp.materialized_view
@dp.expect_or_fail("every order has a positive amount", "amount > 0")
@dp.expect_unique("order_id")
@dp.expect_references("customer_id", "customers", "customer_id")
def orders(raw_orders: DataFrame, raw_products: DataFrame) -> DataFrame:
    """What was bought, with its price."""
    priced = raw_orders.join(raw_products, "product_id")
    return priced.select(
        "order_id", "customer_id", "product_id", "day", (F.col("quantity") * F.col("price")).alias("amount")
    )


@dp.materialized_view
@dp.expect_rows(at_least=1)
def daily(orders: DataFrame) -> DataFrame:
    """What each day came to."""
    return orders.groupBy("day").agg(F.count("*").alias("orders"), F.sum("amount").alias("amount"))


@dp.materialized_view
def features(orders: DataFrame, customers: DataFrame) -> DataFrame:
    """What is known of each customer, for a model."""
    bought = orders.groupBy("customer_id").agg(F.count("*").alias("orders"), F.sum("amount").alias("amount"))
    return customers.join(bought, "customer_id").select("customer_id", "country", "orders", "amount")


@dp.materialized_view
@dp.expect_references("customer_id", "features", "customer_id")
def labels(features: DataFrame) -> DataFrame:
    """What the model is to learn: from the same instant as the features."""
    return features.select("customer_id", (F.col("amount") > 500).alias("is_good_customer"))
