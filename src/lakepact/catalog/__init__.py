"""What the APIs mean, said in cells: namespaces, tables, views, and commits over many of them.

errors       what is refused, in Iceberg's words
keys         where the cells are
pointers     which metadata file is a table or a view now
warehouse    the fence around the files
files        metadata files, read, written and remembered
work         how a change happens: look, plan, write files, commit, and again if something moved
names        from names to pointers
listing      lists and pages
namespaces, tables, views
             the plans
edits        many tables staged together, by updates or as whole documents
catalog      all of it for one warehouse
idempotency  what makes two requests the same
receipts     what a committed change leaves behind
trail, audit who asked for what: as lines in files, and read back
watch        what happens inside, for metrics
"""

from lakepact.catalog.catalog import Catalog
from lakepact.catalog.operations import CatalogSettings
from lakepact.catalog.watch import Watch
from lakepact.catalog.work import Call, Done

__all__ = ["Call", "Catalog", "CatalogSettings", "Done", "Watch"]
