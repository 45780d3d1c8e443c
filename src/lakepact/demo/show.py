"""What a person sees: a live picture on a terminal, plain lines elsewhere, and a verdict at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from lakepact.demo.director import Run
from lakepact.demo.verdict import Summary

EVENTS_SHOWN = 6
LINE_EVERY_S = 5.0
PROBLEMS_SHOWN = 5


class Show(Protocol):
    def __call__(self, run: Run, elapsed_s: float) -> None: ...


@contextmanager
def showing(console: Console, seconds: float) -> Iterator[Show]:
    if not console.is_terminal:
        yield _Lines(console, seconds)
        return
    with Live(console=console, refresh_per_second=10, transient=True) as live:

        def show(run: Run, elapsed_s: float) -> None:
            live.update(_picture(run, elapsed_s, seconds))

        yield show


class _Lines:
    def __init__(self, console: Console, seconds: float) -> None:
        self._console = console
        self._seconds = seconds
        self._next_s = LINE_EVERY_S

    def __call__(self, run: Run, elapsed_s: float) -> None:
        if elapsed_s < self._next_s:
            return
        self._next_s += LINE_EVERY_S
        committed = sum(len(answers.committed) for answers in run.answers)
        conflicted = sum(len(answers.conflicted) for answers in run.answers)
        kills = sum(worker.kills for worker in run.movers)
        self._console.print(
            f"{elapsed_s:4.0f} s of {self._seconds:.0f}: {committed:,} transfers committed, {conflicted:,} refused, "
            f"{kills} kills, {run.cuts.audited:,} cuts audited, {len(run.cuts.wrong)} of them wrong",
            highlight=False,
            soft_wrap=True,
        )


def introduction(console: Console, *, store: str, movers: int, accounts: int, total: int, seconds: float) -> None:
    console.print(
        f"{movers} processes move amounts between {accounts} accounts that hold {total:,} together, on {store}, for "
        f"{seconds:.0f} s. An auditor adds the accounts up all the while. A saboteur kills the processes with SIGKILL.",
        highlight=False,
    )
    console.print()


def _picture(run: Run, elapsed_s: float, seconds: float) -> RenderableType:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bold")
    for title in ("", "process", "committed", "refused", "killed", "doubts settled"):
        table.add_column(title, justify="left" if not title else "right")
    for worker, answers in zip(run.movers, run.answers, strict=True):
        table.add_row(
            worker.name,
            str(worker.pid),
            f"{len(answers.committed):,}",
            f"{len(answers.conflicted):,}",
            str(worker.kills),
            str(answers.were_committed + answers.were_not),
        )
    verdict = f"every one adds up to {run.bank.total:,}" if not run.cuts.wrong else run.cuts.wrong[-1]
    audit = Text(f"auditor: {run.cuts.audited:,} cuts, {verdict}", style="red" if run.cuts.wrong else "green")
    recent = run.events[-EVENTS_SHOWN:]
    events = [
        Text(f"· {event}", style="red" if event.startswith("killed") else "dim", no_wrap=True, overflow="ellipsis")
        for event in recent
    ]
    bar = ProgressBar(total=seconds, completed=min(elapsed_s, seconds), width=60)
    blank = Text()
    return Group(bar, blank, table, blank, audit, blank, *events, *[blank] * (EVENTS_SHOWN - len(recent)))


def _fate_of_the_late(summary: Summary) -> str:
    refused = summary.were_not - summary.finished_late
    return f"{summary.finished_late} went through and {refused} came too late: the accounts had moved on"


def conclusion(console: Console, summary: Summary) -> None:
    facts = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    facts.add_column(justify="right", style="bold")
    facts.add_column()
    for number, meaning in (
        (summary.tried, "transfers tried"),
        (summary.committed, "committed"),
        (summary.conflicted, "refused, because another transfer had moved an account first"),
        (summary.killed, "times a process was killed"),
        (summary.in_doubt, "of these left a transfer in doubt, settled by its id:"),
        (summary.were_committed, "had been committed before the kill, and were not sent again"),
        (summary.were_not, f"had not; sent again under the same id, {_fate_of_the_late(summary)}"),
        (summary.cuts, f"cuts audited, each adding up to {summary.total:,}"),
    ):
        facts.add_row(f"{number:,}", meaning)
    console.print(facts, highlight=False)
    console.print()
    for check in summary.checks:
        mark = Text("✓ " if check.holds else "✗ ", style="green" if check.holds else "bold red")
        promise = Text(f"  {check.promise}" if check.promise else "", style="dim")
        console.print(Text.assemble(mark, check.claim, promise), soft_wrap=True)
        for problem in check.problems[:PROBLEMS_SHOWN]:
            console.print(Text(f"    {problem}", style="red"), soft_wrap=True)
        if len(check.problems) > PROBLEMS_SHOWN:
            console.print(Text(f"    and {len(check.problems) - PROBLEMS_SHOWN:,} more", style="red"))
    console.print()
    if summary.holds:
        ending = f"{summary.killed} kills, {summary.committed:,} transfers, {summary.total:,} before and after."
        console.print(Panel.fit(Text(f"Nothing was lost. {ending}", style="bold green"), border_style="green"))
    else:
        console.print(Panel.fit(Text("A promise was broken: see above.", style="bold red"), border_style="red"))
