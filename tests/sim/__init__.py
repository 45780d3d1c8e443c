"""A deterministic simulator of the kernel on a store that can only swap one document at a time.

It drives the production modules of `lakepact.kernel` unchanged: they await only ports, and here every port hands
control to a scheduler. One seeded generator decides everything: which task runs, which request is applied, which
answer is delivered, which timer fires, which process dies. So a seed is a whole history, and a failure is a number.

    scheduler.py    hand-stepped coroutines and virtual time
    faults.py       what goes wrong, and how often
    documents.py    the simulated store: sent, applied, answered
    process.py      processes: ports, crashes, restarts, stalls
    calls.py        calls from clients to processes, and their answers
    formats.py      the documents as the oracle reads them, independently of the kernel's own decoder
    oracle.py       what may happen to a document, checked at every applied write
    answers.py      what may be answered, checked at every answer
    history.py      strict serializability of what happened
    counters.py     rare things that must have happened somewhere in a batch
    actors/         clients with a purpose
    scenarios.py    which actors and faults a seed is made of
    world.py        one seed from its first step to its last check
    batch.py        many seeds on several processes
    exhaustive.py   every schedule of a small world
    sabotages.py    breaks the kernel on purpose, to test the tester

The catalog has simulations of its own, over the memory stores and without faults of the storage:

    catalog_world.py    servers, requests and the command line that they share
    publishing.py       isolation of open transactions
    locations.py        tables at locations that contain one another
    restores.py         backups, lost stores, restores, receipts and garbage collection afterwards
"""
