"""Work that keeps a store tidy and its receipts complete, done by whichever server holds the lease.

lease.py         one holder at a time, kept in a cell of the store itself
runner.py        does the jobs, again and again
steps.py         long work in bounded steps, for the runner

receipts.py      writes receipts, right after commits and for what a crash has left out
arrivals.py      puts a receipt, with a note if it is late
reconcile.py     looks for changes without a receipt: records, then every cell
  histories.py   the versions of one table, and the receipts that belong to them
  chain.py       the versions of an Iceberg table, by its metadata log
  witnesses.py   which transaction made a version
  scribe.py      sees to it that a receipt is there
  shelf.py       whether it is, loose or packed
  sizes.py       how large a Delta table was
  completed.py   how far tables are known to be complete
segments.py      what a packed day looks like
packing.py       packs days that have ended
mending.py       packed days that are damaged: made again, or set aside
collection/      deletes what nobody needs any more, receipts among it
receipt_jobs.py  all of this as jobs
days.py          the days that have a folder
"""
