"""The search for orphans: files in the folders of tables that nothing leads to.

storage.py   files, from executors
listing.py   what is there
reaching.py  what is needed
search.py    the difference, and its end
"""

from lakepact.spark.jobs.orphans.search import Found, TableOrphans, Wish, search

__all__ = ["Found", "TableOrphans", "Wish", "search"]
