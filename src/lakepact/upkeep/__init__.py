"""Work that keeps a store tidy, done by whichever server holds the lease.

lease.py   one holder at a time, kept in a cell of the store itself
runner.py  does the jobs, again and again
"""
