"""Collection: what nobody needs any more is deleted, each kind after its own time, and every deletion is told.

removal.py     what goes, why, and by which rule
references.py  the files that a table leads to, read through the warehouse
purge.py       dropped tables: their files, or only their claim to a location
abandoned.py   new tables of transactions that were given up
receipts.py    receipts that are packed and projected
expiry.py      snapshots, by the tables' own properties
collector.py   all of it for one warehouse: by hand, or now and then in a server

What lies in the folders of live tables and is needed by none is not looked for here: that takes a listing of the
warehouse, and is a job for Spark (`lakepact.spark.jobs.orphans`).
"""

from lakepact.upkeep.collection.collector import CLASSES, Collector, CollectorSettings, collection_job
from lakepact.upkeep.collection.removal import Class, Removal, Report

__all__ = ["CLASSES", "Class", "Collector", "CollectorSettings", "Removal", "Report", "collection_job"]
