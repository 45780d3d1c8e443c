"""Starts the processes of the demo, kills and restarts movers, and follows everybody's journal."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lakepact.demo.bank import Bank, Transfer
from lakepact.demo.journal import Follower
from lakepact.demo.worker import Assignment
from lakepact.kernel.identity import TransactionId
from lakepact.setting_sources import PREFIX
from lakepact.settings import Settings

TICK_S = 0.1
KILL_EVERY_S = (0.5, 1.1)
START_WITHIN_S = 120.0
STOP_WITHIN_S = 120.0


@dataclass(slots=True)
class Answers:
    """What a mover wrote down: every intention, and every answer it was given."""

    intended: dict[TransactionId, Transfer] = field(default_factory=dict)
    committed: set[TransactionId] = field(default_factory=set)
    conflicted: set[TransactionId] = field(default_factory=set)
    were_committed: int = 0
    were_not: int = 0
    finished_late: int = 0

    @property
    def in_doubt(self) -> list[Transfer]:
        answered = self.committed | self.conflicted
        return [transfer for id, transfer in self.intended.items() if id not in answered]

    def settled(self, id: TransactionId, *, was: bool, committed: bool) -> None:
        self.were_committed += was
        self.were_not += not was
        self.finished_late += committed and not was
        (self.committed if committed else self.conflicted).add(id)

    def learn(self, entry: dict[str, Any]) -> None:
        match entry["event"]:
            case "intent":
                transfer = Transfer.from_json(entry["transfer"])
                self.intended[transfer.id] = transfer
            case "outcome":
                (self.committed if entry["committed"] else self.conflicted).add(entry["id"])
            case "settled":
                self.settled(entry["id"], was=entry["was"], committed=entry["committed"])


@dataclass(slots=True)
class Cuts:
    """What the auditor wrote down."""

    audited: int = 0
    missed: int = 0
    wrong: list[str] = field(default_factory=list)

    def learn(self, entry: dict[str, Any], total: int) -> None:
        if entry["event"] == "no-cut":
            self.missed += 1
            return
        self.audited += 1
        if entry["total"] != total:
            self.wrong.append(f"cut {self.audited} adds up to {entry['total']:,}, not {total:,}")
        if entry["backwards"]:
            self.wrong.append(f"cut {self.audited} shows an older state of {', '.join(entry['backwards'])}")


class Worker:
    """One process of the demo, and its successors after each kill."""

    def __init__(self, name: str, module: str, bank: Bank, folder: Path, environment: dict[str, str]) -> None:
        self.name = name
        self.kills = 0
        self.intended_at_start = 0
        self._journal = folder / f"{name.replace(' ', '-')}.journal"
        self._log = folder / f"{name.replace(' ', '-')}.log"
        self._command = [sys.executable, "-m", module, *Assignment(bank, self._journal).arguments()]
        self._environment = environment
        self._follower = Follower(self._journal)
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        # A session of its own: an interrupt from the keyboard is for the director, who ends the others in order.
        with self._log.open("ab") as log:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def new_entries(self) -> Iterator[dict[str, Any]]:
        return self._follower.new_entries()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self.kills += 1

    def restart(self) -> None:
        self._process = self._start()

    def ask_to_stop(self) -> None:
        if self.running:
            self._process.terminate()

    def ended(self, within_s: float) -> str | None:
        """Wait for the end; what went wrong, if something did."""
        try:
            code = self._process.wait(timeout=within_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return f"{self.name} did not stop within {STOP_WITHIN_S:.0f} s when asked to"
        # Asked to stop before it could listen for that, the process ends by the signal itself.
        return None if code in (0, -15) else self.misfortune()

    def misfortune(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else "no reason given"
        return f"{self.name} ended by itself with code {self._process.returncode}: {reason}"

    def close(self) -> None:
        if self.running:
            self._process.kill()
            self._process.wait()


class Run:
    """One run of the demo, as seen from outside the processes."""

    def __init__(self, bank: Bank, settings: Settings, folder: Path, movers: int) -> None:
        environment = {**os.environ, **_as_environment(settings)}
        self.bank = bank
        self.answers = [Answers() for _ in range(movers)]
        self.cuts = Cuts()
        self.events: list[str] = []
        self.misfortunes: list[str] = []
        self.movers = [
            Worker(f"mover {number}", "lakepact.demo.mover", bank, folder, environment)
            for number in range(1, movers + 1)
        ]
        self.auditor = Worker("auditor", "lakepact.demo.auditor", bank, folder, environment)

    @property
    def everybody(self) -> list[Worker]:
        return [*self.movers, self.auditor]

    def follow(self) -> None:
        """Learn what has been written down since the last look."""
        for worker, answers in zip(self.movers, self.answers, strict=True):
            for entry in worker.new_entries():
                answers.learn(entry)
                if entry["event"] == "settled":
                    self.events.append(_recovery_story(worker.name, entry))
        for entry in self.auditor.new_entries():
            self.cuts.learn(entry, self.bank.total)

    def await_start(self) -> None:
        """Wait until everybody has done something, so that a slow machine shortens nobody's part."""
        deadline = time.monotonic() + START_WITHIN_S
        while not (self.cuts.audited and all(answers.intended for answers in self.answers)):
            time.sleep(TICK_S)
            self.follow()
            self.misfortunes += [worker.misfortune() for worker in self.everybody if not worker.running]
            if self.misfortunes:
                return
            if time.monotonic() > deadline:
                self.misfortunes.append(f"not all processes were at work within {START_WITHIN_S:.0f} s")
                return

    def act(self, seconds: float, chance: random.Random, show: Callable[[Run, float], None]) -> None:
        """Let them work while the saboteur does what saboteurs do."""
        began = time.monotonic()
        next_kill = began + chance.uniform(*KILL_EVERY_S)
        while (elapsed := time.monotonic() - began) < seconds and not self.misfortunes:
            time.sleep(TICK_S)
            self.follow()
            self.misfortunes += [worker.misfortune() for worker in self.everybody if not worker.running]
            if time.monotonic() >= next_kill and not self.misfortunes:
                self.sabotage(chance)
                next_kill = time.monotonic() + chance.uniform(*KILL_EVERY_S)
            show(self, elapsed)

    def sabotage(self, chance: random.Random) -> None:
        # Only a mover that has done something since it was started: killing a start-up proves little.
        candidates = [
            (worker, answers)
            for worker, answers in zip(self.movers, self.answers, strict=True)
            if len(answers.intended) > worker.intended_at_start
        ]
        if not candidates:
            return
        worker, answers = chance.choice(candidates)
        pid = worker.pid
        worker.kill()
        self.follow()
        worker.intended_at_start = len(answers.intended)
        moment = "in the middle of a transfer" if answers.in_doubt else "between two transfers"
        self.events.append(f"killed {worker.name} (process {pid}) {moment}")
        worker.restart()

    def stop(self) -> None:
        """Ask everybody to end; movers finish the transfer at hand."""
        for worker in self.everybody:
            worker.ask_to_stop()
        deadline = time.monotonic() + STOP_WITHIN_S
        for worker in self.everybody:
            problem = worker.ended(max(0.1, deadline - time.monotonic()))
            if problem and problem not in self.misfortunes:
                self.misfortunes.append(problem)
        self.follow()


@contextmanager
def running(bank: Bank, settings: Settings, folder: Path, movers: int) -> Iterator[Run]:
    """A run whose processes are gone when the block ends, however it ends."""
    run = Run(bank, settings, folder, movers)
    try:
        yield run
    finally:
        for worker in run.everybody:
            worker.close()


def _as_environment(settings: Settings) -> dict[str, str]:
    """The settings as a child process reads them. Not as arguments: those are open to everybody on the machine."""
    values = settings.model_dump(exclude_none=True)
    return {
        PREFIX + name.upper(): json.dumps(value) if isinstance(value, dict | list) else str(value)
        for name, value in values.items()
    }


def _recovery_story(name: str, entry: dict[str, Any]) -> str:
    short = entry["id"][-12:]
    if entry["was"]:
        return f"{name} is back: transfer …{short} had been committed"
    ending = "it is now, under the same id" if entry["committed"] else "refused for good, an account moved"
    return f"{name} is back: transfer …{short} had not been committed; {ending}"
