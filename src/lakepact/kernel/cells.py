"""`DocumentCells`: the `CellStore` contract kept on a store that can only swap one document at a time.

This is the door to the protocol; it checks input and hands each call its own `Access`. What the contract means is in
`ports.CellStore`, how it is kept is in `docs/protocol.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import orjson

from lakepact.errors import Contended, InvalidRequest, InvalidSetting, OutcomeUnknown, StoreUnavailable, WrongState
from lakepact.kernel import checks, decide
from lakepact.kernel.access import Access, Memory, Ports, Remembered
from lakepact.kernel.decide import Claim
from lakepact.kernel.documents import FORMAT, NEWEST_READABLE_FORMAT
from lakepact.kernel.identity import TransactionId, first_id_of, parse_transaction_id
from lakepact.kernel.keys import Key, check_key, is_below, name_of_cell, name_prefix_of_cells
from lakepact.kernel.model import (
    Busy,
    Cell,
    CellPage,
    Collection,
    CommitResult,
    Committed,
    Conflict,
    Failed,
    Isolation,
    Prepared,
    PrepareResult,
    Recovery,
    State,
    Transaction,
    TransactionPage,
    TransactionRecord,
    Value,
)
from lakepact.kernel.overlay import Overlay
from lakepact.kernel.ports import Applied, Clock, DocumentStore, Rng, StoreTime, Tasks
from lakepact.kernel.protocol import Coordinator, replay
from lakepact.kernel.reader import Reader
from lakepact.kernel.recovery import Recoverer, Rounds
from lakepact.kernel.resolve import Resolver
from lakepact.kernel.seen import check_seen
from lakepact.kernel.settings import KernelSettings
from lakepact.kernel.staging import Staging
from lakepact.kernel.staginglog import StagingLogs

_WATERMARK = "watermark.json"
_REMEMBERED_LOGS = 256
_QUIET_RECORDS = 100_000


class DocumentCells:
    def __init__(
        self, documents: DocumentStore, clock: Clock, rng: Rng, tasks: Tasks, settings: KernelSettings | None = None
    ) -> None:
        self._settings = settings or KernelSettings()
        if not FORMAT <= self._settings.write_format <= NEWEST_READABLE_FORMAT:
            raise InvalidSetting(
                f"write_format must be {FORMAT} or {NEWEST_READABLE_FORMAT}, the formats this release reads"
            )
        self._ports = Ports(documents, clock, rng, tasks, self._settings)
        self._memory = Memory(self._settings)
        self._logs: StagingLogs = Remembered(_REMEMBERED_LOGS)
        self._rounds = Rounds(Remembered(_QUIET_RECORDS))

    # --- reading ---

    async def read(self, keys: Iterable[Key]) -> Mapping[Key, Cell]:
        return await Reader(self._access()).cut(checks.check_keys(keys, self._settings))

    async def scan(self, prefix: str, after: str | None = None, limit: int = 100) -> CellPage:
        cursor = self._cursor(prefix, after)
        return await Reader(self._access()).page(prefix, cursor, checks.check_limit(limit, self._settings))

    def _cursor(self, prefix: str, after: str | None) -> str | None:
        """The name of a document, which the page before has given, or that of the cell with this key."""
        if prefix:
            check_key(prefix, self._settings.max_key_bytes)
        if after is None or after.startswith(name_prefix_of_cells(prefix)):
            return after
        if not is_below(Key(after), prefix):
            raise InvalidRequest(f"{after!r} is not a scan cursor; pass the `after` of the page before")
        return name_of_cell(check_key(after, self._settings.max_key_bytes))

    async def lookup(self, transaction_id: TransactionId) -> TransactionRecord | None:
        version = await self._access().record(parse_transaction_id(transaction_id))
        return version.document.public() if version is not None else None

    # --- committing ---

    async def commit(self, transaction: Transaction, *, settle_conflict: bool = True) -> CommitResult:
        checked = checks.check_transaction(transaction, self._settings, self._now_ms())
        result = await Coordinator(self._access(), checked, settle_conflict=settle_conflict).run()
        assert not isinstance(result, Prepared)
        if checked.sealed and not isinstance(result, Busy):
            self._logs.forget(checked.id)
        return result

    async def prepare(self, transaction: Transaction, *, settle_conflict: bool = True) -> PrepareResult:
        checked = checks.check_transaction(transaction, self._settings, self._now_ms())
        return await Coordinator(self._access(), checked, settle_conflict=settle_conflict, hold=True).run()

    async def fail(self, transaction_id: TransactionId, request_hash: str, answer: Value) -> Committed | Failed:
        nothing = Transaction(transaction_id, request_hash, answer=answer)
        nothing = checks.check_transaction(nothing, self._settings, self._now_ms())
        try:
            return await self._fail(nothing)
        except StoreUnavailable as error:
            raise OutcomeUnknown(nothing.id, str(error), attempted="failed, or committed before") from error

    async def _fail(self, nothing: Transaction) -> Committed | Failed:
        access = self._access()
        identity = access.identity(access.fresh_owner())
        first = decide.preparing(nothing, identity, self._settings.write_format)
        failed = await access.write_record(None, decide.failed(first, identity, answer=nothing.answer))
        attempt = 0
        while failed is None:
            found = await access.record(nothing.id)
            now = Claim.WAIT if found is None else decide.claim(found.document, nothing.request_hash, access.now_ms())
            match now:
                case Claim.REPLAY if found is not None:
                    answered = replay(found.document)
                    if isinstance(answered, Conflict):
                        raise WrongState(f"transaction {nothing.id} has failed already, with a conflict")
                    return answered
                case Claim.TAKE_OVER | Claim.EXPIRE if found is not None:
                    refusal = decide.failed(found.document, identity, answer=nothing.answer)
                    failed = await access.write_record(found, refusal)
                case _ if attempt >= self._settings.attempts:
                    raise Contended(f"transaction {nothing.id} is being worked on under the same id; try again")
                case _:
                    await access.pause(attempt)
            attempt += 1
        self._ports.tasks.background(Resolver(access.anew()).clean_up(failed))
        return Failed(nothing.id, failed.document.answer or {})

    # --- open transactions ---

    async def begin(
        self,
        transaction_id: TransactionId,
        *,
        request_hash: str = "",
        ttl_s: float | None = None,
        isolation: Isolation = Isolation.SERIALIZABLE,
        properties: Mapping[str, str] | None = None,
    ) -> TransactionRecord:
        checked_id = checks.check_id(transaction_id, self._settings, self._now_ms())
        checks.check_text("request_hash", request_hash)
        lifetime_s = checks.check_ttl(ttl_s, self._settings)
        kept = checks.check_properties(properties or {})
        return await self._staging().begin(checked_id, request_hash, lifetime_s, isolation, kept)

    async def read_in(
        self, transaction_id: TransactionId, keys: Iterable[Key], *, note: bool = True
    ) -> Mapping[Key, Cell]:
        wanted = checks.check_keys(keys, self._settings)
        checked_id = parse_transaction_id(transaction_id)
        if note:
            return await self._staging().read_in(checked_id, wanted)
        return await self._overlay().look(checked_id, wanted)

    async def scan_in(
        self, transaction_id: TransactionId, prefix: str, after: str | None = None, limit: int = 100
    ) -> CellPage:
        cursor = self._cursor(prefix, after)
        size = checks.check_limit(limit, self._settings)
        return await self._overlay().page(parse_transaction_id(transaction_id), prefix, cursor, size)

    async def stage(
        self,
        transaction_id: TransactionId,
        operation_id: str,
        writes: Mapping[Key, Value | None],
        *,
        seen: Mapping[Key, Cell] | None = None,
    ) -> None:
        checked_id = parse_transaction_id(transaction_id)
        checked = checks.check_staged(operation_id, writes, self._settings)
        planned_on = check_seen(checked_id, seen, self._settings)
        await self._staging().stage(checked_id, operation_id, checked, planned_on)

    async def contents(self, transaction_id: TransactionId) -> Transaction:
        return await self._overlay().contents(parse_transaction_id(transaction_id))

    async def seal(self, transaction_id: TransactionId, answer: Value | None = None) -> Transaction:
        return await self._staging().seal(parse_transaction_id(transaction_id), answer or {})

    async def renew(self, transaction_id: TransactionId, ttl_s: float | None = None) -> TransactionRecord:
        lifetime_s = checks.check_ttl(ttl_s, self._settings)
        return await self._staging().renew(parse_transaction_id(transaction_id), lifetime_s)

    async def abort(self, transaction_id: TransactionId) -> TransactionRecord:
        access = self._access()
        aborted = await Staging(access, self._logs).abort(parse_transaction_id(transaction_id))
        if not aborted.document.finalized:
            self._ports.tasks.background(Resolver(access.anew()).clean_up(aborted))
        return aborted.document.public()

    async def transactions(
        self,
        states: Iterable[State] = (),
        *,
        created_before_ms: int | None = None,
        made_since_ms: int | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> TransactionPage:
        size = checks.check_limit(limit, self._settings)
        begin = None if after is None else parse_transaction_id(after)
        if begin is None and made_since_ms is not None:
            begin = first_id_of(made_since_ms)
        return await Recoverer(self._access(), self._rounds).transactions(states, created_before_ms, begin, size)

    # --- upkeep ---

    async def recover(self, limit: int = 1_000) -> Recovery:
        return await Recoverer(self._access(), self._rounds).recover(limit)

    async def collect(self, limit: int = 1_000) -> Collection:
        return await Recoverer(self._access(), self._rounds).collect(limit)

    async def time(self) -> StoreTime | None:
        return await self._ports.documents.time()

    async def watermark(self) -> Value | None:
        document = await self._ports.documents.get(_WATERMARK)
        return None if document is None else orjson.loads(document.data)

    async def put_watermark(self, value: Value, was: Value | None) -> bool:
        documents, data = self._ports.documents, orjson.dumps(value)
        if was is None:
            return isinstance(await documents.create(_WATERMARK, data), Applied)
        document = await documents.get(_WATERMARK)
        if document is None or orjson.loads(document.data) != was:
            return False
        return isinstance(await documents.swap(_WATERMARK, document.token, data), Applied)

    async def close(self) -> None:
        await self._ports.tasks.drain()
        await self._ports.documents.close()

    # --- one call ---

    def _access(self) -> Access:
        return Access(self._ports, self._memory)

    def _staging(self) -> Staging:
        return Staging(self._access(), self._logs)

    def _overlay(self) -> Overlay:
        return Overlay(self._access(), self._logs)

    def _now_ms(self) -> int:
        return self._ports.clock.now_ms()
