"""A bank that is being sabotaged: the promises of Lakepact, shown rather than told.

Movers, each a process of its own, move amounts between cells. An auditor reads consistent cuts and adds them up. A
saboteur kills movers with SIGKILL, again and again; a restarted mover finds in its journal what it was about to do
and settles it by transaction id. At the end every answer that was ever given is compared with the store.

    bank.py      accounts, transfers and how a transfer becomes a transaction
    journal.py   what a process writes down before and after it acts; it outlives the process
    mover.py     a process that moves amounts          (python -m lakepact.demo.mover)
    auditor.py   a process that adds up cuts           (python -m lakepact.demo.auditor)
    director.py  starts, kills and restarts the others
    verdict.py   compares journals and store when all is over
    show.py      what a person sees
"""
