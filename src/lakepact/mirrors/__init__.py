"""Copies of what the catalog says, for engines that do not ask it: logs of Delta tables, a DuckDB file of views.

runner.py         who follows what and when: leases, backoff, right after a commit and again in the background
log.py            the engine `delta_log`: the commit files of every table, in order
checkpoints.py    and their checkpoints
cuts.py           which versions belong together: `_transactions/`
duckdb_engine.py  the engine `duckdb`: one file of views for a warehouse, of one cut
lake.py           the tables of a warehouse at one instant
iceberg_files.py  the files of an Iceberg table
views.py          a table as a view of DuckDB
duckdb_file.py    the file itself

The database is the truth. A mirror that fails, dies or falls behind loses nothing: it goes on where it was.
"""

from lakepact.mirrors.engines import ENGINES, Engine
from lakepact.mirrors.runner import Mirrors, MirrorSettings, Outcome

__all__ = ["ENGINES", "Engine", "MirrorSettings", "Mirrors", "Outcome"]
