"""A transaction as a block: committed if the block ends, aborted if it raises.

    new ── begin ──> open ── commit ──> committed
                      │  ╰────────────> failed     a conflict: nothing was applied
                      │  ╰────────────> unknown    nobody could say; it is never aborted then
                      ╰───── abort ──> aborted

Nobody outside sees anything before the commit, and then everything at one instant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from lakepact.client.caller import Caller
from lakepact.client.delta import DeltaTables
from lakepact.client.display import html_facts, html_rows
from lakepact.client.errors import Conflict, Forbidden, Refused, TransactionClosed, Unauthorized, Unknown
from lakepact.client.heartbeat import Heartbeat
from lakepact.client.machine import new_id
from lakepact.client.names import Name, shown
from lakepact.client.namespaces import Namespaces
from lakepact.client.place import Place
from lakepact.client.state import TransactionStates
from lakepact.client.tables import Cut, Tables
from lakepact.client.transactions import ABORTED, COMMITTED, FAILED, Published, TransactionInfo, Transactions, Wish
from lakepact.errors import LakepactError

if TYPE_CHECKING:
    from pyiceberg.catalog.rest import RestCatalog

    from lakepact.client.frames import FrameType, TableFormat, WriteMode

_OPEN: Final = "open"
_UNKNOWN: Final = "unknown"
_BEATS_A_LIFE: Final = 3
_LONGEST_BEAT_S: Final = 60.0


class Transaction:
    """One transaction. Made by `lake.transaction()`; not to be used twice.

        with lake.transaction() as tx:
            tx.write("sales.orders", orders)
            tx.write("sales.daily", daily, mode="overwrite")

    Statements may come from several threads; `commit` and `abort` from one.
    """

    def __init__(
        self,
        caller: Caller,
        place: Place,
        wish: Wish,
        *,
        key: str | None = None,
        joined: bool = False,
        source: Mapping[str, Any] | None = None,
    ) -> None:
        self._outside = caller
        self._place = place
        self._wish = wish
        # Made once: however often begin is sent, one transaction begins.
        self._key = key or new_id(caller.machine)
        self._joined = joined
        self._source = source
        self._transactions = Transactions(caller)
        self._info: TransactionInfo | None = None
        self._inside: Caller | None = None
        self._outcome = _OPEN
        self._results: tuple[Published, ...] = ()
        self._committed_source: Mapping[str, Any] | None = None
        self._heartbeat: Heartbeat | None = None
        self._catalog: RestCatalog | None = None

    # --- what it is ---

    @property
    def id(self) -> str:
        """Its id, a UUIDv7. Another program works in it with `lake.join(tx.id)`."""
        return self._key

    @property
    def info(self) -> TransactionInfo:
        """The transaction as it was when it began: `tx.info.expires_at`."""
        if self._info is None and self._joined:
            raise RuntimeError(
                f"transaction {self.id} is not joined yet: use `with lake.join({self.id!r}) as tx:`, or "
                f"`tx = lake.join({self.id!r}).begin()`"
            )
        if self._info is None:
            raise RuntimeError("the transaction has not begun: use `with lake.transaction() as tx:`, or call begin()")
        return self._info

    @property
    def warehouse(self) -> str:
        """What an engine is given as its warehouse to work inside: `main@<id>`."""
        return self.info.warehouse

    @property
    def prefix(self) -> str:
        """What the paths of requests inside it begin with, after `/v1/`."""
        return self.info.prefix

    @property
    def uri(self) -> str:
        """The server's address."""
        return self._place.uri

    @property
    def base_uri(self) -> str:
        """The catalog URI of this transaction: below it every request is inside, whatever prefix the client sends.

        For clients that leave the prefix of `GET /v1/config` out of some requests, such as ClickHouse.
        """
        return f"{self._place.uri}/in/{self.warehouse}"

    @property
    def outcome(self) -> str:
        """`open`, `committed`, `aborted`, `failed` or `unknown`, as far as this client knows."""
        return self._outcome

    @property
    def results(self) -> tuple[Published, ...]:
        """The tables and views it has published. Empty before the commit."""
        return self._results

    def __repr__(self) -> str:
        return f"Transaction({self._key}, {self._outcome if self._info else 'not begun'})"

    def _repr_html_(self) -> str:
        facts: dict[str, object] = {"state": self._outcome if self._info else "not begun"}
        if self._info is not None:
            facts |= {
                "warehouse": self._info.warehouse,
                "isolation": self._info.isolation,
                "begun": self._info.created_at.isoformat(),
                "properties": ", ".join(f"{name}={value}" for name, value in self._info.properties.items()),
            }
        published = ((shown(one.identifier), one.metadata_location) for one in self._results)
        tables = html_rows("Published", ("table", "metadata"), published) if self._results else ""
        return html_facts(f"Transaction {self._key}", facts) + tables

    # --- working in it ---

    @property
    def namespaces(self) -> Namespaces:
        """Namespaces as the transaction sees them: `tx.namespaces.create("sales", exist_ok=True)`."""
        return Namespaces(self._within())

    @property
    def tables(self) -> Tables:
        """Iceberg tables as the transaction sees them: `tx.tables.load("sales.orders").snapshot_id`."""
        return Tables(self._within(), self._place.properties)

    @property
    def delta(self) -> DeltaTables:
        """Delta tables as the transaction sees them: `tx.delta.load("ml.labels").files`.

        All changes of one table become one version.
        """
        return DeltaTables(self._within())

    @property
    def state(self) -> TransactionStates:
        """State documents that are committed with the tables: `tx.state["orders-import"] = {"offset": 7}`."""
        return TransactionStates(self._within(), self.id)

    def read_at(self, tables: Name | Iterable[Name], at: datetime | None = None) -> Cut:
        """Load tables as this transaction sees them: what it has staged, everything else as of one instant.

            cut = tx.read_at(["sales.orders", "sales.daily"])

        `at` is a time, as for `lake.read_at`.
        """
        return self.tables.load_many(tables, at)

    def read(
        self,
        table: Name,
        *,
        as_: FrameType = "arrow",
        columns: Sequence[str] | None = None,
        at: datetime | None = None,
    ) -> Any:
        """Read the rows of a table as this transaction sees it, of either format: with what it has staged.

            tx.read("sales.orders", as_="pandas")

        The arguments are those of `lake.read`.
        """
        from lakepact.client.frames import read_table

        return read_table(
            self.tables,
            self.delta,
            self.pyiceberg(),
            self._place.properties,
            table,
            frame_type=as_,
            columns=columns,
            at=at,
        )

    def write(
        self,
        table: Name,
        data: Any,
        mode: WriteMode = "append",
        *,
        format: TableFormat | None = None,
        partition_by: Sequence[str] = (),
    ) -> None:
        """Stage rows of Arrow, pandas, Polars or DuckDB: they become visible with the commit.

            with lake.transaction() as tx:
                tx.write("sales.orders", orders)
                tx.write("sales.daily", daily, mode="overwrite")

        The arguments are those of `lake.write`.
        """
        from lakepact.client.frames import arrow_table, check_write, write_table

        check_write(table, mode, format, partition_by)
        rows = arrow_table(data)
        properties = self._place.properties
        write_table(self, properties, table, rows, mode=mode, table_format=format, partition_by=partition_by)

    def pyiceberg(self, **properties: str) -> RestCatalog:
        """Return a PyIceberg catalog inside the transaction. Needs the extra `lakepact[pyiceberg]`.

        tx.pyiceberg().load_table("sales.orders").append(orders)
        """
        from lakepact.client.pyiceberg import rest_catalog

        if properties:
            return rest_catalog(self._place, self.warehouse, properties)
        if self._catalog is None:
            self._catalog = rest_catalog(self._place, self.warehouse)
        return self._catalog

    # --- its life ---

    def begin(self, *, renew: bool = True) -> Self:
        """Begin it, and renew it in the background until it ends. For programs that cannot use `with`.

            tx = lake.transaction().begin()

        Raises `TransactionClosed` if it was begun under the same key before, and has ended.
        """
        if self._info is not None:
            raise RuntimeError(f"transaction {self.id} has begun already; make another one with lake.transaction()")
        wish = self._wish
        info = (
            self._transactions.get(self._key)
            if self._joined
            else self._transactions.begin(
                ttl=wish.ttl_s,
                isolation=wish.isolation,
                properties=wish.properties,
                read_only=wish.read_only,
                key=self._key,
            )
        )
        if info.ended:
            self._outcome = info.state
            advice = "Begin a new one" if self._joined else "Use another key to do something else"
            raise TransactionClosed(
                f"transaction {info.id} has ended before: it is {info.state}. {advice}",
                transaction_id=info.id,
                state=info.state,
            )
        self._info = info
        self._inside = self._outside.inside(info.prefix, info.id)
        if renew and info.expires_at is not None:
            self._renew((info.expires_at - info.created_at).total_seconds())
        return self

    def commit(self, source: Mapping[str, Any] | None = None) -> tuple[Published, ...]:
        """Make everything visible at one instant, and return what was published. The block does this by itself.

            tx.commit(source={"job": "nightly"})

        `source` says in your own words who or what this was, and is kept in the receipts of its tables.
        Raises `Conflict`, `TransactionClosed`, `Unavailable` (it may be called again) or `Unknown`.
        """
        if self._outcome == COMMITTED:
            return self._results
        self._check_open()
        self._committed_source = self._source if source is None else source
        return self._send_commit()

    def settle(self) -> tuple[Published, ...]:
        """Send a commit whose outcome is `unknown` again, which is safe, and return what was published.

            except Unknown:
                tx.settle()

        Raises `Conflict`, or `TransactionClosed` with the state `aborted` or `failed`: nothing was applied. Raises
        `Unknown` for as long as the server does not say what became of the commit, also if it refuses the repeated
        request or cannot be reached: this says nothing about the first one.
        """
        if self._outcome != _UNKNOWN:
            return self.commit()
        try:
            return self._send_commit()
        except (Conflict, Unknown):
            raise
        except LakepactError as error:
            if self._outcome in (ABORTED, FAILED):
                raise
            return self._state_after(error)

    def _state_after(self, error: LakepactError) -> tuple[Published, ...]:
        """Read what became of an unknown commit whose repetition ended in this error, which is no proof of anything.

        A refusal may be the transaction's stored answer, and may be about the repeated request alone. The state tells
        them apart. Raises `error` if the transaction has failed or was aborted, and else `Unknown`.
        """
        self._outcome = _UNKNOWN
        if isinstance(error, Refused) and not isinstance(error, Unauthorized | Forbidden):
            with suppress(LakepactError):
                info = self._transactions.get(self.id)
                if info.ended:
                    self._outcome, self._results = info.state, info.results
        if self._outcome == COMMITTED:
            return self._results
        if self._outcome in (ABORTED, FAILED):
            raise error
        # The error is about the repeated request, and may say that nothing happened. That must not be read here.
        reason = str(error).partition("Nothing happened")[0].rstrip(" .")
        raise Unknown(
            f"commit of transaction {self.id}",
            f"the first commit had no answer, and the repeated one did not tell either: {reason}",
            self.id,
        ) from None

    def _send_commit(self) -> tuple[Published, ...]:
        try:
            self._results = self._transactions.commit(self.id, self._committed_source)
        except Conflict:
            self._end(FAILED)
            raise
        except TransactionClosed as error:
            self._end(error.state)
            raise
        except Unknown:
            self._end(_UNKNOWN)
            raise
        self._end(COMMITTED)
        return self._results

    def abort(self) -> None:
        """Discard it: nothing of it will ever be visible. Aborting twice is fine.

        tx.abort()
        """
        if self._outcome in (ABORTED, FAILED):
            return
        self._check_open()
        try:
            self._transactions.abort(self.id)
        except TransactionClosed as error:
            self._end(error.state)
            if error.state not in (ABORTED, FAILED):
                raise
        else:
            self._end(ABORTED)

    def __enter__(self) -> Self:
        return self if self._info is not None else self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._outcome != _OPEN or self._joined:
                return
            if error is None:
                self.commit()
            else:
                self._give_up(error)
        finally:
            # Also if the server is away: then it expires, which is what nobody's transaction should do.
            self._stop_renewing()

    def _give_up(self, error: BaseException) -> None:
        """Abort, and let the error through that made it necessary, whatever comes of that."""
        try:
            self.abort()
        except TransactionClosed as ended:
            error.add_note(f"transaction {self.id} was not aborted, for it had ended before: it is {ended.state}")
        except LakepactError as failure:
            error.add_note(f"transaction {self.id} could not be aborted ({failure}); it ends when it expires")

    def _check_open(self) -> None:
        info = self.info
        if self._outcome == _UNKNOWN:
            raise Unknown(f"transaction {info.id}", "its commit had no answer", info.id)
        if self._outcome != _OPEN:
            raise TransactionClosed(
                f"transaction {info.id} is {self._outcome}. Begin a new one",
                transaction_id=info.id,
                state=self._outcome,
            )

    def _within(self) -> Caller:
        if self._inside is None:
            self.info  # noqa: B018 - raises what should be said
        assert self._inside is not None
        return self._inside

    def _renew(self, life_s: float) -> None:
        transactions, transaction_id, ttl_s = self._transactions, self.id, self._wish.ttl_s
        self._heartbeat = Heartbeat(
            lambda: transactions.beat(transaction_id, ttl_s),
            min(life_s / _BEATS_A_LIFE, _LONGEST_BEAT_S),
            self._outside.machine,
            transaction_id,
        )
        self._heartbeat.start()

    def _end(self, outcome: str) -> None:
        self._outcome = outcome
        self._stop_renewing()

    def _stop_renewing(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()
