"""Calls from clients to processes. A client outlives the processes it talks to, and may not hear an answer.

The answer is judged at the instant the process gives it, whether or not the client ever hears it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from lakepact.kernel.ports import CellStore
from tests.sim.documents import Log
from tests.sim.faults import Faults
from tests.sim.formats import short
from tests.sim.process import Process, Sleeper
from tests.sim.scheduler import Scheduler, Task, suspend

T = TypeVar("T")


class Disconnected(Exception):
    """The client heard nothing: the process died, the answer was lost, or the client's patience ran out."""


class Judge(Protocol):
    def arrived(self, call: Call) -> None: ...

    def answered(self, call: Call, result: Any, failure: Exception | None) -> None: ...

    def crashed(self, call: Call) -> None: ...


class Call(Sleeper):
    """One call, from its arrival at a process to its end there."""

    __slots__ = ("_client", "_network", "_open", "denied", "kind", "process", "started", "subject", "transaction_id")

    def __init__(
        self, network: Network, client: Task, process: Process, kind: str, transaction_id: str | None, subject: Any
    ) -> None:
        super().__init__()
        self._network = network
        self._client = client
        self._open = True
        self.process = process
        self.kind = kind
        self.transaction_id = transaction_id
        self.subject = subject
        """What was asked: a transaction, keys, whatever the judge needs to know."""

        self.started = network.scheduler.steps
        self.denied = False
        """Whether the caller was told that nothing was applied by this call."""

    def __str__(self) -> str:
        about = f" {short(self.transaction_id)}" if self.transaction_id else ""
        return f"[{self.process}] {self.kind}{about}"

    def ended(self, task: Task) -> None:
        """The process has an answer."""
        self.process.waiting.pop(self, None)
        network = self._network
        network.log.add("answer", self, _spoken(task))
        network.judge.answered(self, task.result, task.failure)
        if not self._open:
            return
        if network.faults.on and network.scheduler.random.random() < network.faults.answer_loss:
            return
        self._open = False
        if task.failure is not None:
            self._client.wake_with(task.failure)
        else:
            self._client.wake(task.result)

    def crashed(self) -> None:
        self._network.judge.crashed(self)
        self._hang_up("the process died")

    def fire(self) -> None:
        """The client has waited long enough."""
        self._hang_up("no answer in time")

    def _hang_up(self, reason: str) -> None:
        if self._open:
            self._open = False
            self._client.wake_with(Disconnected(reason))


def _spoken(task: Task) -> str:
    if task.failure is not None:
        return f"{type(task.failure).__name__}: {task.failure}"
    return str(task.result)


class Network:
    """How clients reach processes."""

    __slots__ = ("faults", "judge", "log", "patience_s", "scheduler")

    def __init__(self, scheduler: Scheduler, faults: Faults, judge: Judge, log: Log, patience_s: float | None) -> None:
        self.scheduler = scheduler
        self.faults = faults
        self.judge = judge
        self.log = log
        self.patience_s = patience_s

    async def call(
        self,
        process: Process,
        kind: str,
        ask: Callable[[CellStore], Coroutine[Any, Any, T]],
        *,
        transaction_id: str | None = None,
        subject: Any = None,
    ) -> T:
        """What the process answers; `Disconnected` if nothing is heard of it."""
        scheduler = self.scheduler
        call = Call(self, scheduler.me(), process, kind, transaction_id, subject)
        self.log.add("call", call)
        self.judge.arrived(call)
        process.waiting[call] = None
        scheduler.spawn(ask(process.cells), host=process, root=call, ended=call)
        if self.patience_s is not None:
            scheduler.after(self.patience_s, call)
        answer: T = await suspend()
        return answer
