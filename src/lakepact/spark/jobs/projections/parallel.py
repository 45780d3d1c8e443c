"""Run independent writes of one transaction at the same time.

A write of few rows is mostly planning in the driver and requests to the server, which leave the other cores idle. The
statements of a transaction may come from several threads, and each of these writes changes tables of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import Final

from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession

from lakepact.spark.errors import TransactionUnfit

_THREADS: Final = 3
"""More of them gain nothing on two cores, and hold more data in memory at the same time."""


def run_in_parallel(
    spark: SparkSession, tasks: Mapping[str, Callable[[], None]], on_done: Callable[[str], None] = lambda name: None
) -> None:
    """Run these tasks in a few threads, in the order in which they are given.

    `on_done` is called in the thread of the caller, with the name of each task that has ended. If a task fails, those
    that have not started are cancelled. The first failure is raised when no task runs any more, so that nothing is
    staged in a transaction that the caller aborts.
    """
    failures: list[BaseException] = []
    # The job group and the scheduler pool of the caller are properties of its thread.
    inherit = inheritable_thread_target(spark)
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="lakepact-projections") as threads:
        names = {threads.submit(inherit(task)): name for name, task in tasks.items()}
        running = set(names)
        try:
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                failures += [error for future in done if (error := future.exception()) is not None]
                if failures:
                    # A cancelled future never completes for `wait`, so it must not be waited for.
                    running = {future for future in running if not future.cancel()}
                else:
                    for future in done:
                        on_done(names[future])
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    if failures:
        # `TransactionUnfit` only says that another task has failed before.
        raise next((error for error in failures if not isinstance(error, TransactionUnfit)), failures[0])
