"""The simulated store. A request has three moments, scheduled apart: it is sent, it is applied, it is answered.

Between them anything may happen to it (`faults.Fate`). A version token is a hash of the content, as an S3 ETag is:
if bytes ever repeat, an old token becomes valid again, and the oracle sees what follows from it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Sequence
from enum import Enum, auto
from hashlib import blake2b
from typing import Any, Final, Protocol, TypeAlias
from zlib import crc32

from lakepact.errors import StoreUnavailable
from lakepact.kernel.ports import Applied, Document, DocumentEntry, Refused, Unknown, WriteOutcome
from tests.sim.broken import PromiseBroken
from tests.sim.counters import Counters
from tests.sim.faults import BUSY_REASONS, Fate, Faults
from tests.sim.formats import describe
from tests.sim.scheduler import Host, Scheduler, Task, suspend

LOG_LENGTH: Final = 40


class Kind(Enum):
    GET = auto()
    LIST = auto()
    CREATE = auto()
    SWAP = auto()
    DELETE = auto()

    @property
    def reads(self) -> bool:
        return self in (Kind.GET, Kind.LIST)


Outcome: TypeAlias = WriteOutcome | Document | list[DocumentEntry] | None


class Observer(Protocol):
    """Sees every write at the instant it takes effect."""

    def written(self, request: Request, name: str, data: bytes) -> None: ...

    def deleted(self, request: Request, name: str) -> None: ...


class Log:
    """The last things that happened, kept as values and put into words only when somebody asks."""

    __slots__ = ("_entries", "_scheduler", "verbose")

    def __init__(self, scheduler: Scheduler, *, verbose: bool = False) -> None:
        self._scheduler = scheduler
        self._entries: deque[tuple[Any, ...]] = deque(maxlen=LOG_LENGTH)
        self.verbose = verbose

    def add(self, *what: Any) -> None:
        entry = (self._scheduler.steps, self._scheduler.now, *what)
        self._entries.append(entry)
        if self.verbose:
            print(_line(entry), flush=True)

    def tail(self) -> list[str]:
        return [_line(entry) for entry in self._entries]


def _line(entry: tuple[Any, ...]) -> str:
    step, now, what, *rest = entry
    words = " ".join(word.line() if isinstance(word, Request) else str(word) for word in rest)
    return f"{step:>7} {now:>12.4f}s  {what:<9} {words}"


class Storage:
    """What all processes share: the documents, and the requests on their way to them."""

    __slots__ = ("_names", "_unsettled", "counters", "documents", "faults", "log", "observer", "scheduler", "trace")

    def __init__(self, scheduler: Scheduler, faults: Faults, observer: Observer, counters: Counters, log: Log) -> None:
        self.scheduler = scheduler
        self.faults = faults
        self.observer = observer
        self.counters = counters
        self.log = log
        self.documents: dict[str, Document] = {}
        self.trace = 0
        """A checksum of everything that was applied, in order: equal for two runs only if they were equal."""

        self._names: list[str] = []
        self._unsettled: dict[tuple[object, str], Request] = {}

    def send(self, request: Request) -> None:
        scheduler, faults = self.scheduler, self.faults
        fate = request.fate = faults.fate(scheduler.random, scheduler.now, request.name)
        match fate:
            case Fate.NORMAL | Fate.TWICE | Fate.SLOW_ANSWER | Fate.ERROR:
                scheduler.soon(request)
            case Fate.LOST:
                scheduler.after(faults.timeout_s, GiveUp(request, "timed out"))
            case Fate.ANSWER_LOST:
                scheduler.soon(request)
                scheduler.after(faults.timeout_s, GiveUp(request, "timed out"))
            case Fate.LATE:
                scheduler.after(faults.timeout_s, GiveUp(request, "timed out"))
                scheduler.after(faults.timeout_s + faults.lateness_s(scheduler.random), request)
            case Fate.SLOW:
                scheduler.after(faults.slow_s * scheduler.random.random(), request)
            case Fate.BUSY:
                scheduler.soon(GiveUp(request, scheduler.random.choice(BUSY_REASONS)))
        if self.log.verbose:
            self.log.add("sent", request, fate.name)

    def apply(self, request: Request) -> None:
        """The instant at which the request takes effect."""
        try:
            outcome = self._applied(request)
        except PromiseBroken:
            self.log.add("BROKEN BY", request)
            raise
        if request.given_up or request.task.dead:
            self.counters["zombie landed" if isinstance(outcome, Applied) else "zombie refused"] += not request.reads
        if request.outcome is None:
            request.outcome = outcome
        request.applied = request.applied or isinstance(outcome, Applied)
        name = request.name
        self.trace = crc32(f"{name}{type(outcome).__name__}{request.token}".encode(), self.trace)
        self.log.add("applied", request, "->", _spoken(outcome))

    def _applied(self, request: Request) -> Outcome:
        name = request.name
        match request.kind:
            case Kind.GET:
                return self.documents.get(name)
            case Kind.CREATE if name in self.documents:
                return Refused()
            case Kind.SWAP if name not in self.documents or self.documents[name].token != request.token:
                return Refused()
            case Kind.CREATE | Kind.SWAP:
                data = request.data
                token = blake2b(data, digest_size=8).hexdigest()
                self.observer.written(request, name, data)
                if request.kind is Kind.CREATE:
                    insort(self._names, name)
                self.documents[name] = Document(data, token)
                return Applied(token)
            case Kind.DELETE:
                if name in self.documents:
                    self.observer.deleted(request, name)
                    del self.documents[name]
                    del self._names[bisect_left(self._names, name)]
                    return Applied("")
                return Refused()
            case Kind.LIST:
                return self._listed(name, request.token, request.limit)

    def _listed(self, prefix: str, after: str | None, limit: int) -> list[DocumentEntry]:
        names = self._names
        first = max(bisect_left(names, prefix), bisect_right(names, after) if after is not None else 0)
        page: list[DocumentEntry] = []
        for name in names[first : first + limit]:
            if not name.startswith(prefix):
                break
            page.append(DocumentEntry(name, self.documents[name].token))
        return page

    def answer(self, request: Request, outcome: Outcome) -> None:
        """Deliver an answer, unless nobody waits for one any more."""
        if request.given_up or request.task.dead:
            return
        request.given_up = True
        where = (request.task.root, request.name)
        if isinstance(outcome, Unknown):
            self.log.add("unknown", request, outcome.reason)
            if not request.reads:
                self._unsettled[where] = request
        elif request.kind is Kind.GET and where in self._unsettled:
            settled = self._unsettled.pop(where)
            self.counters["unknown settled as applied" if settled.applied else "unknown settled as not applied"] += 1
        request.task.wake(outcome)


def _spoken(outcome: Outcome) -> str:
    match outcome:
        case None:
            return "nothing there"
        case Document():
            return f"read {outcome.token[:6]}"
        case Applied():
            return f"applied {outcome.token[:6]}"
        case Refused():
            return "refused"
        case list():
            return f"{len(outcome)} names"
        case Unknown():
            return f"unknown: {outcome.reason}"


class Request:
    """One request on its way."""

    __slots__ = ("applied", "data", "fate", "given_up", "kind", "limit", "name", "outcome", "storage", "task", "token")

    def __init__(
        self,
        storage: Storage,
        kind: Kind,
        name: str,
        task: Task,
        token: str | None = None,
        data: bytes = b"",
        limit: int = 0,
    ) -> None:
        self.storage = storage
        self.kind = kind
        self.name = name
        self.task = task
        self.token = token
        self.data = data
        self.limit = limit
        self.fate = Fate.NORMAL
        self.outcome: Outcome = None
        self.applied = False
        self.given_up = False

    @property
    def reads(self) -> bool:
        return self.kind.reads

    @property
    def host(self) -> Host | None:
        return self.task.host

    def fire(self) -> None:
        storage = self.storage
        storage.apply(self)
        scheduler, faults = storage.scheduler, storage.faults
        match self.fate:
            case Fate.NORMAL | Fate.SLOW:
                scheduler.pool.append(Answer(self))
            case Fate.TWICE:
                scheduler.pool.append(Answer(self))
                if not self.reads:
                    scheduler.after(faults.lateness_s(scheduler.random), Again(self))
            case Fate.SLOW_ANSWER:
                scheduler.after(faults.slow_s * scheduler.random.random(), Answer(self))
            case Fate.ERROR:
                scheduler.pool.append(GiveUp(self, "500 internal error"))
            case _:
                # The answer is lost; the sender's timeout is on its way.
                return

    def line(self) -> str:
        written = f" := {describe(self.name, self.data)}" if self.data else ""
        return f"[{self.host}] {self.kind.name.lower()} {self.name}{written}"


class Answer:
    """The answer of a request on its way back."""

    __slots__ = ("_request",)

    def __init__(self, request: Request) -> None:
        self._request = request

    def fire(self) -> None:
        self._request.storage.answer(self._request, self._request.outcome)


class GiveUp:
    """The sender hears no clean answer."""

    __slots__ = ("_reason", "_request")

    def __init__(self, request: Request, reason: str) -> None:
        self._request = request
        self._reason = reason

    def fire(self) -> None:
        self._request.storage.answer(self._request, Unknown(self._reason))


class Again:
    """A copy of a request, made somewhere on the way, arrives."""

    __slots__ = ("_request",)

    def __init__(self, request: Request) -> None:
        self._request = request

    def fire(self) -> None:
        self._request.storage.apply(self._request)


class ProcessDocuments:
    """The store as one process sees it: the port the kernel is given."""

    __slots__ = ("_storage",)

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def get(self, name: str) -> Document | None:
        outcome = await self._ask(Kind.GET, name)
        assert outcome is None or isinstance(outcome, Document)
        return outcome

    async def create(self, name: str, data: bytes) -> WriteOutcome:
        outcome = await self._ask(Kind.CREATE, name, None, data)
        assert isinstance(outcome, Applied | Refused | Unknown)
        return outcome

    async def swap(self, name: str, token: str, data: bytes) -> WriteOutcome:
        outcome = await self._ask(Kind.SWAP, name, token, data)
        assert isinstance(outcome, Applied | Refused | Unknown)
        return outcome

    async def list(self, prefix: str, after: str | None, limit: int) -> Sequence[DocumentEntry]:
        outcome = await self._ask(Kind.LIST, prefix, after, b"", limit)
        assert isinstance(outcome, list)
        return outcome

    async def delete(self, name: str) -> None:
        await self._ask(Kind.DELETE, name)

    async def time(self) -> None:
        """Simulated processes get the evidence of the time from their world."""

    async def close(self) -> None:
        return None

    async def _ask(self, kind: Kind, name: str, token: str | None = None, data: bytes = b"", limit: int = 0) -> Outcome:
        storage = self._storage
        storage.send(Request(storage, kind, name, storage.scheduler.me(), token, data, limit))
        outcome: Outcome = await suspend()
        if isinstance(outcome, Unknown) and kind in (Kind.GET, Kind.LIST, Kind.DELETE):
            raise StoreUnavailable(f"{name}: {outcome.reason}")
        return outcome
