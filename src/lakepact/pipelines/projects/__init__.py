"""Projects of Spark Declarative Pipelines (`spark-pipeline.yml`), as they are, in one transaction.

project.py    what a project's file says, and what of it cannot be in a transaction
runner.py     a run: the transaction is held here, the project runs in a process beside
driver.py     that process: Spark with its Connect server, whose catalog is inside the transaction
checkpoints.py  where the streams of a project have come to: committed with its tables, or not at all

The transaction is the client's own. Spark knows nothing of it: its catalog has another warehouse, that is all.
"""
