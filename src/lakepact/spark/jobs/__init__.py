"""Upkeep that grows with the lake, as Spark jobs."""
