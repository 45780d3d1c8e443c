"""A connected catalog: where everything else begins."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar
from urllib.parse import urlsplit

from lakepact.client.audit import AuditLines, audit_lines
from lakepact.client.caller import Caller
from lakepact.client.collection import Collection
from lakepact.client.delta import DeltaChange, DeltaTables
from lakepact.client.display import html_facts
from lakepact.client.errors import Refused, Unknown, conflict_of
from lakepact.client.grants import Grants
from lakepact.client.http import CA_BUNDLE_VARIABLE, HttpTransport, Transport, trusting
from lakepact.client.machine import Machine, Retry, ThisMachine, new_id
from lakepact.client.names import Identifier, Name, document_of, identifier_of, shown, table_name
from lakepact.client.namespaces import Namespaces
from lakepact.client.outages import Outages, is_outage
from lakepact.client.place import Place
from lakepact.client.runs import run_in_transaction
from lakepact.client.state import States
from lakepact.client.tables import Cut, Tables
from lakepact.client.token import CREDENTIAL_VARIABLE, Credential, TokenSource, given_token, source_of
from lakepact.client.transaction import Transaction
from lakepact.client.transactions import Isolation, Published, Transactions, Wish, published_of

if TYPE_CHECKING:
    from pyiceberg.catalog.rest import RestCatalog
    from pyiceberg.table import Transaction as TableTransaction

    from lakepact.client.frames import FrameType, TableFormat, WriteMode

T = TypeVar("T")

URI_VARIABLE: Final = "LAKEPACT_URI"
DEFAULT_URI: Final = "http://127.0.0.1:8181"


@dataclass(frozen=True, slots=True)
class TableChange:
    """A change of one table, as the REST protocol writes it.

    comment = {"action": "set-properties", "updates": {"comment": "all orders"}}
    lake.commit([TableChange("sales.orders", [], [comment])])
    """

    table: Name
    """The table to change."""

    requirements: Sequence[Mapping[str, Any]]
    """What must hold for the change to be applied."""

    updates: Sequence[Mapping[str, Any]]
    """What is changed."""

    def to_json(self) -> dict[str, Any]:
        """Return the change as the REST protocol writes it."""
        return {
            "identifier": document_of(table_name(self.table)),
            "requirements": list(self.requirements),
            "updates": list(self.updates),
        }


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit of several tables: what `lake.commit` returns."""

    transaction_id: str | None
    """Under which it can be asked about. None: there was nothing to commit."""

    results: tuple[Published, ...]
    """The tables as the commit has left them."""


Changes: TypeAlias = "Iterable[TableChange | DeltaChange | TableTransaction]"


def connect(
    uri: str | None = None,
    warehouse: str | None = None,
    token: str | None = None,
    *,
    credential: str | None = None,
    oauth2_server_uri: str | None = None,
    properties: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    retry: Retry | None = None,
    connect_s: float = 10.0,
    answer_s: float = 30.0,
    ca_bundle: str | os.PathLike[str] | None = None,
    ssl_context: ssl.SSLContext | None = None,
) -> Lake:
    """Connect to a catalog server.

        lake = lakepact.connect("http://127.0.0.1:8181")
        lake.read("sales.orders", as_="pandas")

    `uri` is where it listens, LAKEPACT_URI or http://127.0.0.1:8181 unless given; `warehouse` one of those it has, its
    default one unless given; `token` a bearer token, or `@` and the path of a file that has one and is read again when
    it changes: LAKEPACT_TOKEN or LAKEPACT_TOKEN_FILE unless given. With a `credential`, `id:secret`, the token is
    fetched, and fetched again before it expires, from the server itself or from `oauth2_server_uri`:
    LAKEPACT_CREDENTIAL unless given. `properties` go to PyIceberg (access to files, such as `s3.endpoint`), `headers`
    are sent with every request. `retry` bounds how long one request is repeated, `connect_s` and `answer_s` how long a
    single attempt waits. Over https the system's authorities vouch for the server's certificate, or those in the file
    `ca_bundle`, LAKEPACT_CA_BUNDLE unless given; `ssl_context` goes before both.

    Raises `NotFound` for a warehouse that is not there, `Unavailable` if nobody answers.
    """
    if token and credential:
        raise ValueError("connect() was given both a token and a credential; give one of the two")
    uri = (uri or os.environ.get(URI_VARIABLE) or DEFAULT_URI).rstrip("/")
    ca_bundle = os.fspath(ca_bundle) if ca_bundle else os.environ.get(CA_BUNDLE_VARIABLE) or None
    if ssl_context is None and ca_bundle is not None:
        ssl_context = trusting(ca_bundle)
    transport = HttpTransport(uri, connect_s=connect_s, answer_s=answer_s, ssl_context=ssl_context)
    if credential is None and not token:
        credential = os.environ.get(CREDENTIAL_VARIABLE) or None
    place = Place(
        uri,
        warehouse or "",
        None if credential else given_token(token),
        headers or {},
        properties or {},
        credential=credential,
        oauth2_server_uri=oauth2_server_uri,
        ca_bundle=ca_bundle,
    )
    return connected(transport, place, retry=retry)


def connected(
    transport: Transport, place: Place, *, retry: Retry | None = None, machine: Machine | None = None
) -> Lake:
    """A lake over this transport. The server is asked for its prefix of the warehouse."""
    from lakepact import __version__

    client = f"lakepact-python/{__version__}"
    sent = {"User-Agent": client, "X-Client-Version": client, "Accept": "application/json", **place.headers}
    machine = machine or ThisMachine()
    caller = Caller(
        transport,
        machine,
        base_path=urlsplit(place.uri).path.rstrip("/"),
        headers=sent,
        retry=retry,
        tokens=_tokens(place, transport, machine),
    )
    if "@" in place.warehouse:
        raise ValueError(f"{place.warehouse!r} is inside a transaction: connect to the warehouse, then lake.join(id)")
    config = caller.read("config", query={"warehouse": place.warehouse} if place.warehouse else None).json()
    told = {**config.get("defaults", {}), **config.get("overrides", {})}
    prefix = told.get("prefix", "")
    if "@" in prefix:
        raise ValueError(f"{place.uri} is inside a transaction: connect to the server, then use lake.join(id)")
    place = replace(place, warehouse=place.warehouse or prefix)
    return Lake(caller.inside(prefix), place, location=told.get("lakepact.warehouse-location"))


def _tokens(place: Place, transport: Transport, machine: Machine) -> TokenSource | None:
    if place.credential is None:
        return None if place.token is None else source_of(place.token)
    target = urlsplit(place.token_endpoint)
    if place.oauth2_server_uri is not None:
        context = None if place.ca_bundle is None else trusting(place.ca_bundle)
        transport = HttpTransport(place.token_endpoint, ssl_context=context)
    path = target.path + (f"?{target.query}" if target.query else "")
    return Credential(place.credential, transport, path, machine)


class Lake:
    """One warehouse of a server: where everything else begins. Safe to share between threads.

    lake = lakepact.connect("http://127.0.0.1:8181")
    lake.namespaces.create("sales", exist_ok=True)
    lake.write("sales.orders", orders, mode="create")
    lake.read("sales.orders", as_="pandas")

    with lake.transaction() as tx:  # all of it, or none of it
        tx.write("sales.orders", orders)
        tx.write("sales.daily", daily, mode="overwrite")
    """

    def __init__(self, caller: Caller, place: Place, *, location: str | None = None) -> None:
        self._caller = caller
        self._place = place
        self._location = location

    @property
    def location(self) -> str | None:
        """Where the warehouse is, as the server writes it: `s3://lake/main`."""
        return self._location

    @property
    def namespaces(self) -> Namespaces:
        """Namespaces: `lake.namespaces.list()`, `lake.namespaces.create("sales", exist_ok=True)`."""
        return Namespaces(self._caller)

    @property
    def tables(self) -> Tables:
        """Iceberg tables as metadata: `lake.tables.list("sales")`, `lake.tables.load("sales.orders").metadata`."""
        return Tables(self._caller, self._place.properties)

    @property
    def delta(self) -> DeltaTables:
        """Delta tables: `lake.delta.list("ml")`, `lake.delta.load("ml.labels").files`."""
        return DeltaTables(self._caller)

    @property
    def transactions(self) -> Transactions:
        """Transactions by their ids: `lake.transactions.list("open")`, `lake.transactions.get(id).state`."""
        return Transactions(self._caller)

    @property
    def grants(self) -> Grants:
        """Who may do what: `lake.grants.add("user:ann", "read", On.namespace("sales"))`."""
        return Grants(self._caller)

    @property
    def state(self) -> States:
        """State documents as they are committed: `lake.state["orders-import"]`."""
        return States(self._caller)

    @property
    def collection(self) -> Collection:
        """Which files are still needed, for programs that delete files: `lake.collection.reachable()`."""
        return Collection(self._caller)

    @property
    def uri(self) -> str:
        """The server's address: `http://127.0.0.1:8181`."""
        return self._place.uri

    @property
    def warehouse(self) -> str:
        """The name of the warehouse: `main`."""
        return self._place.warehouse

    @property
    def prefix(self) -> str:
        """What the paths of requests begin with, after `/v1/`."""
        return self._caller.prefix

    @property
    def place(self) -> Place:
        """Everything that another client needs to connect the same way: `lake.place.uri`."""
        return self._place

    def __repr__(self) -> str:
        return f"Lake({self.uri}, {self.warehouse})"

    def _repr_html_(self) -> str:
        facts = {"server": self.uri, "warehouse": self.warehouse, "location": self.location}
        return html_facts("Lakepact warehouse", facts)

    # --- transactions ---

    def transaction(
        self,
        *,
        ttl: float | None = None,
        isolation: Isolation | None = None,
        properties: Mapping[str, str] | None = None,
        read_only: bool = False,
        source: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> Transaction:
        """A transaction over any number of tables, to be used with `with`: committed at the end, aborted on an error.

            with lake.transaction() as tx:
                tx.write("sales.orders", orders)

        `ttl` is for how many seconds it may live without being renewed, which the block does by itself; `isolation`
        is `serializable` (what it has read has not changed either) unless `snapshot` is asked for; `properties` are
        kept with it, and `source` goes into the receipts. A `read_only` one sees everything as of one instant and is
        in nobody's way; its commit cannot conflict.

        `key`, a UUIDv7, becomes its id. The same key begins one transaction once, whoever sends it: if it has ended,
        `TransactionClosed` says how; if it is still open, what was staged before is still in it.
        """
        wish = Wish(ttl, isolation, dict(properties or {}), read_only)
        return Transaction(self._caller, self._place, wish, key=key, source=source)

    def join(self, transaction_id: str) -> Transaction:
        """Work in a transaction that another program has begun.

            with lake.join(transaction_id) as tx:
                tx.write("sales.orders", orders)

        The block renews it and leaves its end to the other program; `commit` and `abort` end it all the same.
        """
        return Transaction(self._caller, self._place, Wish(), key=transaction_id, joined=True)

    def run(
        self,
        work: Callable[[Transaction], T],
        *,
        attempts: int = 5,
        ttl: float | None = None,
        isolation: Isolation | None = None,
        properties: Mapping[str, str] | None = None,
        source: Mapping[str, Any] | None = None,
    ) -> T:
        """Run `work` in a transaction, and again in a new one if another commit was faster or the server was away.

            lake.run(lambda tx: tx.write("sales.orders", orders))

        What it does outside of the transaction happens once an attempt, so it had better do nothing there. Returns
        what `work` returned in the attempt that was committed. After the last attempt the `Conflict` is raised, with
        the tables that had moved. A server that does not answer is waited for up to a minute, five times at most, with
        a pause before each repetition. A commit without an answer is then sent again, which is safe; `work` is
        repeated only if nothing was committed. Raises `Unknown` if the server does not tell in that time.

        Other changes are never repeated in doubt. `work` may change something outside of its transaction, such as with
        `lake.write`; if the outcome of that is unknown, the `Unknown` is raised and `work` is not repeated. The same
        holds for PyIceberg: a connection error is an outage only if the request was sent to this server, and was sent
        inside the transaction or changes nothing. Connection errors of other servers are raised.
        """
        return run_in_transaction(
            lambda: self.transaction(ttl=ttl, isolation=isolation, properties=properties, source=source),
            work,
            attempts,
            self.outages(),
            is_outage=lambda error, transaction: is_outage(error, self.uri, transaction.id),
            conflict_in=conflict_of,
        )

    def outages(self) -> Outages:
        """Return the outages of one job of many requests, with which it waits for a server that is away.

        lake.outages().wait()  # True once the server answers
        """
        return Outages(lambda: self._caller.read("config", query={"warehouse": self.warehouse}), self._caller.machine)

    # --- many tables at once ---

    def read_at(self, tables: Name | Iterable[Name], at: datetime | None = None) -> Cut:
        """Load several tables as of one instant: no commit is ever seen in one of them and missing in another.

            cut = lake.read_at(["sales.orders", "sales.daily"])
            cut["sales.orders"].pyiceberg().scan().to_arrow()

        With `at`, a datetime with a time zone, each table is at the snapshot that its snapshot log names for that
        time. The times in it are those that the writers gave their snapshots: of a commit that was being written at
        that very moment, one table may be before it and another after it. Raises `ValueError` for a table without a
        snapshot at that time.
        """
        return self.tables.load_many(tables, at)

    # --- rows ---

    def read(
        self,
        table: Name,
        *,
        as_: FrameType = "arrow",
        columns: Sequence[str] | None = None,
        at: datetime | None = None,
    ) -> Any:
        """Read the rows of a table, Iceberg or Delta.

            lake.read("sales.orders")                          # pyarrow.Table
            lake.read("sales.orders", as_="pandas")            # pandas.DataFrame
            lake.read("sales.orders", as_="polars")            # polars.DataFrame
            lake.read("sales.orders", as_="duckdb")            # duckdb.DuckDBPyRelation
            lake.read("sales.orders", columns=["id"], at=yesterday)

        `columns` are the columns to read, all unless given; `at` is a datetime with a time zone: the table as it was
        then. Needs the extra `lakepact[pyiceberg]`, and the library that `as_` names. Raises `NotFound`.
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
        """Write rows to a table, Iceberg or Delta, in one commit.

            lake.write("sales.orders", orders)                    # append
            lake.write("sales.orders", orders, mode="overwrite")  # replace all rows
            lake.write("ml.labels", labels, mode="create", format="delta", partition_by=["day"])

        `data` is of pyarrow, pandas, Polars or DuckDB, a dict of columns or a list of dicts. Its columns are matched by
        name and cast to the table's types; a value that does not fit raises `ValueError`. `mode="create"` creates the
        table with the data's columns, in the format `iceberg` unless `delta` is given. If another commit is faster, it
        is repeated as by `lake.run`. Needs the extra `lakepact[pyiceberg]`.
        """
        from lakepact.client.frames import arrow_table, check_write

        check_write(table, mode, format, partition_by)
        rows = arrow_table(data)
        self.run(lambda tx: tx.write(table, rows, mode, format=format, partition_by=partition_by))

    def commit(self, changes: Changes, *, key: str | None = None) -> Committed:
        """Commit changes to several tables at one instant, all or none.

            changes = [orders.transaction(), daily.transaction()]  # of PyIceberg tables
            changes[0].append(new_orders)
            changes[1].append(new_daily)
            lake.commit(changes)

        `changes` are PyIceberg transactions (`table.transaction()`, with everything done on it but the commit),
        `TableChange`s, or `DeltaChange`s: both formats move together. Afterwards PyIceberg's tables are refreshed.
        Raises `Conflict`, with the tables that had moved: then nothing was applied, and the transactions are spent.
        """
        given = list(changes)
        plain = [change for change in given if isinstance(change, TableChange)]
        delta = [change.to_json() for change in given if isinstance(change, DeltaChange)]
        pyiceberg = [change for change in given if not isinstance(change, TableChange | DeltaChange)]
        documents = [change.to_json() for change in plain] + self._collected(pyiceberg)
        _refuse_twice([identifier_of(document["identifier"]) for document in [*documents, *delta]])
        key = key or new_id(self._caller.machine)
        if not documents and not delta:
            return Committed(None, ())
        try:
            answer = self._caller.change(
                "POST",
                "{prefix}/transactions/commit",
                body={"table-changes": documents, **({"delta-changes": delta} if delta else {})},
                key=key,
                headers={"Prefer": "return=representation"},
            )
        except (Refused, Unknown) as error:
            self._spent(pyiceberg, refused=isinstance(error, Refused))
            raise
        if pyiceberg:
            from lakepact.client.pyiceberg import applied

            applied(pyiceberg)
        return Committed(key, published_of(answer.json() if answer.body else {}))

    def _collected(self, transactions: Sequence[TableTransaction]) -> list[dict[str, Any]]:
        if not transactions:
            return []
        from lakepact.client.pyiceberg import change_of, is_transaction

        for transaction in transactions:
            if not is_transaction(transaction):
                raise TypeError(f"{transaction!r} is neither a PyIceberg transaction nor a TableChange")
        found = [change_of(transaction, self.prefix) for transaction in transactions]
        return [document for document in found if document is not None]

    def _spent(self, transactions: Sequence[TableTransaction], *, refused: bool) -> None:
        if not transactions:
            return
        from lakepact.client.pyiceberg import in_doubt, not_applied

        (not_applied if refused else in_doubt)(transactions)

    # --- who did what ---

    def audit(
        self,
        *,
        principal: str | None = None,
        operation: str | None = None,
        outcome: str | None = None,
        table: Name | None = None,
        before: str | datetime | None = None,
        limit: int = 100,
    ) -> AuditLines:
        """Return the newest lines of the audit log, for those who manage the warehouse. Raises `Forbidden` for others.

            lake.audit(principal="ann", outcome="denied").lines

        `outcome` is `applied`, `denied`, `refused` or `unknown`; `before` is a moment, or where an earlier answer says
        that it goes on. There may be fewer lines than `limit` and still older ones.
        """
        return audit_lines(self._caller, principal, operation, outcome, table, before, limit)

    def pyiceberg(self, **properties: str) -> RestCatalog:
        """Return a PyIceberg catalog of the warehouse, outside of any transaction.

        lake.pyiceberg().load_table("sales.orders").scan().to_pandas()

        `properties` are PyIceberg's, such as `s3.endpoint`. Use `tx.pyiceberg()` to work inside a transaction. Needs
        the extra `lakepact[pyiceberg]`.
        """
        from lakepact.client.pyiceberg import rest_catalog

        return rest_catalog(self._place, self.warehouse, properties)

    # --- its end ---

    def close(self) -> None:
        """Close the connections it keeps. Transactions that are open stay open until they expire.

        with lakepact.connect() as lake:  # closes it in the end
            lake.namespaces.list()
        """
        self._caller.transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _refuse_twice(identifiers: Sequence[Identifier]) -> None:
    twice = {one for one in identifiers if identifiers.count(one) > 1}
    if twice:
        raise ValueError(f"{shown(min(twice))} is there twice; put all changes of a table into one")
