"""Transactions: what is under way and what each waits for, what has ended, and one of them with all it moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from lakepact.catalog import Catalog
from lakepact.catalog.errors import Forbidden
from lakepact.catalog.history import source_text
from lakepact.catalog.pointers import Kind
from lakepact.catalog.receipts import CommittedChange
from lakepact.errors import InvalidRequest
from lakepact.iceberg.requests import Identifier
from lakepact.kernel.identity import TransactionId, parse_transaction_id
from lakepact.kernel.model import State, TransactionRecord
from lakepact.server.auth.sessions import CSRF_FIELD, Sessions
from lakepact.server.http import Request, Response
from lakepact.server.rest.errors import NoSuchTransaction
from lakepact.server.ui import activity, text
from lakepact.server.ui.account_page import form_fields
from lakepact.server.ui.activity import Activity, Touched
from lakepact.server.ui.data import Windows
from lakepact.server.ui.html import NOTHING, Child, Markup, join, name, tag
from lakepact.server.ui.layout import GUARDS, Page
from lakepact.server.ui.links import Links
from lakepact.server.ui.parts import (
    ACCENT,
    BAD,
    CALM,
    GOOD,
    WARN,
    alert,
    badge,
    card,
    empty,
    facts,
    grid,
    heading,
    icon,
    joined,
    mono,
    pager,
    tabs,
)

_PAGE: Final = 50
_MOST_NAMED: Final = 4
_MINUTES: Final = (("10 minutes", 600), ("1 hour", 3_600), ("6 hours", 21_600))
_LOOKS: Final = {
    State.OPEN: ACCENT,
    State.PREPARING: WARN,
    State.PREPARED: WARN,
    State.COMMITTED: GOOD,
    State.FAILED: BAD,
    State.ABORTED: CALM,
    State.RETRYABLE: WARN,
}
_FILTERS: Final = (("All", ""), ("Committed", "committed"), ("Refused", "failed"), ("Aborted", "aborted"))


def state_badge(state: State) -> Markup:
    return badge("refused" if state is State.FAILED else state.value, _LOOKS[state])


class TransactionPages:
    def __init__(self, windows: Windows, links: Links, sessions: Sessions) -> None:
        self._windows = windows
        self._links = links
        self._sessions = sessions

    async def overview(self, request: Request) -> Page:
        warehouse = request.params["warehouse"]
        catalog = await self._windows.catalog(warehouse, request.principal)
        state, before = _state(request), _before(request)
        shows = await self._windows.shows(catalog, request.principal)
        under_way, more = await activity.undecided(catalog, shows) if before is None else ([], False)
        ended = await activity.recent(catalog, shows, states=[state] if state else activity.DECIDED, before=before)
        following = ended.following and self._links.transactions(warehouse, state=state, before=ended.following)
        menu = tabs(
            [
                (shown, self._links.transactions(warehouse, state=one or None), one == (state or ""))
                for shown, one in _FILTERS
            ],
            label="Which ones",
        )
        body = (
            heading("Transactions", lead="What is under way in this warehouse, and what has ended."),
            self._under_way(catalog, warehouse, under_way, more) if before is None else NOTHING,
            card(
                "Ended",
                menu,
                self.ended(catalog, warehouse, ended.records),
                pager(
                    first=self._links.transactions(warehouse, state=state) if before else None,
                    following=following or None,
                    what="Pages of transactions",
                ),
                flush=True,
            ),
        )
        return Page("Transactions", body, section="transactions", warehouse=warehouse)

    async def show(self, request: Request) -> Page:
        catalog, record = await self._asked(request)
        warehouse = catalog.warehouse.name
        looked = await activity.look_into(catalog, record)
        token = await self._sessions.csrf(request)
        changes = activity.changed_by(record) if record.state is State.COMMITTED else ()
        body = (
            heading(tag("span", record.id, class_="mono small"), state_badge(record.state), *_kind(record, changes)),
            self._notice(catalog, looked),
            self._steps(warehouse, record, token) if not record.state.final else NOTHING,
            self._moved_together(warehouse, changes) if changes else NOTHING,
            self._refusal(record),
            self._touches(warehouse, record, looked),
            card("About it", facts(self._facts(catalog, record))),
        )
        return Page(
            f"Transaction {record.id}",
            body,
            section="transactions",
            warehouse=warehouse,
            trail=(("Transactions", self._links.transactions(warehouse)),),
        )

    async def abort(self, request: Request) -> Response:
        catalog, record = await self._asked(request)
        await self._windows.acting(catalog, request.principal).transactions.abort(record.id)
        return self._back(catalog, record)

    async def renew(self, request: Request) -> Response:
        catalog, record = await self._asked(request)
        seconds = form_fields(request).get("seconds", "")
        if not seconds.isascii() or not seconds.isdecimal() or not 0 < int(seconds[:9]) <= 86_400:
            raise InvalidRequest("say for how many seconds, at most a day")
        await self._windows.acting(catalog, request.principal).transactions.renew(record.id, float(seconds))
        return self._back(catalog, record)

    # --- which one, and whether ---

    async def _asked(self, request: Request) -> tuple[Catalog, TransactionRecord]:
        catalog = await self._windows.catalog(request.params["warehouse"], request.principal)
        transaction_id = parse_transaction_id(request.params["transaction"])
        record = await catalog.transactions.load(transaction_id)
        if record is None:
            raise NoSuchTransaction(
                f"there is no transaction {transaction_id} in warehouse {catalog.warehouse.name}. If it was sent and "
                f"is not here, it did not happen, or it is older than the key horizon"
            )
        if not (await self._windows.shows(catalog, request.principal))(record):
            raise Forbidden(
                f"transaction {transaction_id} is somebody else's, and not committed; to look at it needs the role "
                f"manage on warehouse {catalog.warehouse.name}"
            )
        return catalog, record

    def _back(self, catalog: Catalog, record: TransactionRecord) -> Response:
        place = self._links.transaction(catalog.warehouse.name, record.id)
        return Response(303, b"", ((b"Location", place.encode()), *GUARDS))

    # --- lists ---

    def _under_way(self, catalog: Catalog, warehouse: str, found: Sequence[Activity], more: bool) -> Markup:
        if not found:
            return card("Under way", tag("p", "Nothing is under way.", class_="muted"))
        now_ms = catalog.parts.clock.now_ms()
        rows = (
            (
                self._link(warehouse, one.record.id),
                state_badge(one.record.state),
                text.instant(one.record.created_ms, now_ms=now_ms),
                self._tables(warehouse, one),
                self._waits(warehouse, one, now_ms),
            )
            for one in found
        )
        return card(
            "Under way",
            grid(("Transaction", "State", "Begun", "Tables", "Waits for"), rows, label="Transactions under way"),
            tag("p", f"Only the first {len(found)} are shown.", class_="muted end") if more else None,
            note=text.plural(len(found), "transaction"),
            flush=True,
        )

    def _waits(self, warehouse: str, one: Activity, now_ms: int) -> Child:
        conflicts = one.conflicts
        parts: list[Child] = [one.waits_for]
        if one.record.expires_ms is not None:
            parts.append(join(". Expires ", text.instant(one.record.expires_ms, now_ms=now_ms)))
        if one.held_by:
            links = joined([self._link(warehouse, holder) for holder in one.held_by])
            parts.append(tag("div", badge("held", WARN), " by ", links))
        if conflicts:
            named = ", ".join(dict.fromkeys(touched.name for touched in conflicts[:_MOST_NAMED]))
            parts.append(tag("div", badge("will conflict", BAD), " ", name(named), " has moved since"))
        return tag("div", parts, class_="waits")

    def _tables(self, warehouse: str, one: Activity) -> Child:
        written = [
            touched for touched in one.touched if touched.written and touched.identifier and touched.what != "name"
        ]
        if not written:
            return tag("span", "none yet", class_="muted")
        shown = joined([self._thing(warehouse, touched) for touched in written[:_MOST_NAMED]])
        more = f" and {len(written) - _MOST_NAMED} more" if len(written) > _MOST_NAMED else None
        return join(shown, more)

    def ended(self, catalog: Catalog, warehouse: str, records: Sequence[TransactionRecord]) -> Markup:
        if not records:
            return empty("None here", "What has ended in the last 30 days is shown here.")
        now_ms = catalog.parts.clock.now_ms()
        rows = (
            (
                self._link(warehouse, one.id),
                state_badge(one.state),
                name(str((one.answer or {}).get("operation") or "–")),
                self._outcome(warehouse, one),
                text.instant(one.decided_ms or one.created_ms, now_ms=now_ms),
            )
            for one in records
        )
        columns = ("Transaction", "State", "Operation", "What it moved", "Ended")
        return grid(columns, rows, label="Transactions that have ended", numbers=(4,))

    def _outcome(self, warehouse: str, record: TransactionRecord) -> Child:
        refusal = activity.conflict_of(record)
        if refusal is not None:
            return tag("span", name(str(refusal.get("message", ""))[:160]), class_="muted")
        if record.state is not State.COMMITTED:
            return tag("span", "nothing", class_="muted")
        changes = list(activity.changed_by(record))
        if not changes:
            return tag("span", "no table", class_="muted")
        shown = joined([self._changed(warehouse, one) for one in changes[:_MOST_NAMED]])
        more = f" and {len(changes) - _MOST_NAMED} more" if len(changes) > _MOST_NAMED else None
        return join(shown, more)

    # --- one of them ---

    def _notice(self, catalog: Catalog, looked: Activity) -> Markup:
        record = looked.record
        if record.state.final:
            return NOTHING
        expires = (
            None
            if record.expires_ms is None
            else join(" It expires ", text.instant(record.expires_ms, now_ms=catalog.parts.clock.now_ms()), ".")
        )
        first, _, rest = looked.waits_for.partition(". ")
        waiting = alert(f"It waits for {first}", f"{rest}." if rest else None, expires, look=CALM)
        if not looked.conflicts:
            return waiting
        named = ", ".join(dict.fromkeys(one.name for one in looked.conflicts[:_MOST_NAMED]))
        moved = alert(
            "Its commit would be refused",
            name(named),
            " moved after this transaction had looked. Abort it, and do the work again on what is there now.",
        )
        return join(waiting, moved)

    def _steps(self, warehouse: str, record: TransactionRecord, token: str) -> Markup:
        renew = tag(
            "form",
            tag("input", type="hidden", name=CSRF_FIELD, value=token),
            tag("label", "Let it live for", for_="seconds"),
            tag(
                "select", (tag("option", shown, value=value) for shown, value in _MINUTES), id="seconds", name="seconds"
            ),
            tag("button", "Renew", type="submit"),
            method="post",
            action=self._links.transaction(warehouse, record.id, "renew"),
            class_="step",
        )
        abort = tag(
            "form",
            tag("input", type="hidden", name=CSRF_FIELD, value=token),
            tag("button", "Abort", type="submit", class_="danger"),
            tag("span", "Nothing of it will ever be visible.", class_="muted"),
            method="post",
            action=self._links.transaction(warehouse, record.id, "abort"),
            class_="step",
        )
        return card("End it or let it live", renew if record.state in (State.OPEN, State.PREPARED) else NOTHING, abort)

    def _moved_together(self, warehouse: str, changes: Sequence[CommittedChange]) -> Markup:
        """The tables of one commit, side by side: everybody saw all of it at once."""
        items = (
            tag(
                "li",
                tag("div", self._changed(warehouse, one), badge(one.change.value), class_="moved-head"),
                facts(
                    [
                        ("Revision", None if one.revision is None else f"{one.revision - 1} → {one.revision}"),
                        ("Snapshot", _snapshot(one)),
                        ("Version", _delta_version(one)),
                    ]
                ),
            )
            for one in changes
        )
        count = text.plural(len(changes), "change")
        title = "Moved together" if len(changes) > 1 else "Moved"
        note = f"{count}, at one instant" if len(changes) > 1 else None
        return card(title, tag("ul", items, class_="moved"), note=note)

    def _refusal(self, record: TransactionRecord) -> Markup:
        refusal = activity.conflict_of(record)
        if refusal is None:
            return NOTHING
        details = [("Type", mono(name(str(refusal.get("type"))))), ("Status", str(refusal.get("code")))]
        requirements = [*(refusal.get("failed-requirements") or ()), *(refusal.get("version-conflicts") or ())]
        rows = (
            (
                name(_identifier_text(one.get("identifier"))),
                name(_requirement(one.get("requirement"))),
                mono(name(_value(one.get("expected")))),
                mono(name(_value(one.get("actual")))),
            )
            for one in requirements
            if isinstance(one, dict)
        )
        table = (
            grid(("Table", "Requirement", "Expected", "Found"), rows, label="Requirements that did not hold")
            if requirements
            else NOTHING
        )
        return join(
            alert("Refused: nothing of it was applied", name(str(refusal.get("message", ""))[:2_000])),
            card("What did not hold", table, flush=True) if requirements else NOTHING,
            card("The answer it got", facts(details)),
        )

    def _touches(self, warehouse: str, record: TransactionRecord, looked: Activity) -> Markup:
        live = not record.state.final
        tables = {one.identifier for one in looked.touched if one.what != "name"}
        # That a table still goes by its name is no news beside the table; what a commit has moved is shown above.
        told = [one for one in looked.touched if one.what != "name" or one.identifier not in tables or one.moved]
        told = [one for one in told if live or not one.written]
        if not told:
            return NOTHING
        rows = (
            (
                self._thing(warehouse, one),
                one.what,
                "changes" if one.written else "read",
                f"{one.base:,}",
                *([_now(one)] if live else []),
            )
            for one in told
        )
        columns = ("What", "Kind", "It", "At revision", *(["Now"] if live else []))
        title = "Reads and changes" if live else "What it depended on"
        return card(title, grid(columns, rows, label=title, numbers=(3, 4)), flush=True)

    def _facts(self, catalog: Catalog, record: TransactionRecord) -> list[tuple[str, Child]]:
        answer = record.answer or {}
        source: Any = answer.get("source") or {}
        shown = {key: value for key, value in record.properties.items() if not key.startswith("lakepact")}
        took = None if record.decided_ms is None else (record.decided_ms - record.created_ms) / 1000
        return [
            ("Operation", name(str(answer["operation"])) if answer.get("operation") else None),
            ("Begun", text.instant(record.created_ms)),
            ("Ended", None if record.decided_ms is None else text.instant(record.decided_ms)),
            ("Took", None if took is None else text.duration(max(took, 0))),
            ("Isolation", record.isolation.value),
            ("Source", name(_source(source)) if source else None),
            ("Run", self._run_link(catalog.warehouse.name, record)),
            (
                "Properties",
                name(", ".join(f"{key}={value}" for key, value in sorted(shown.items()))) if shown else None,
            ),
        ]

    def _run_link(self, warehouse: str, record: TransactionRecord) -> Child:
        if "pipeline" not in record.properties:
            return None
        shown = f"{record.properties['pipeline']}, run {record.properties.get('run-id', '')}"
        return tag("a", name(shown), href=self._links.run(warehouse, record.id))

    def _link(self, warehouse: str, transaction_id: str) -> Markup:
        href = self._links.transaction(warehouse, transaction_id)
        return tag("a", mono(short_id(transaction_id)), href=href, title=transaction_id)

    def _thing(self, warehouse: str, one: Touched) -> Markup:
        if one.identifier is None or one.what == "name":
            return name(one.name)
        *namespace, last = one.identifier
        href = self._links.table(warehouse, Identifier(tuple(namespace), last))
        return tag("a", icon(one.what), name(one.name), href=href, class_="named")

    def _changed(self, warehouse: str, one: CommittedChange) -> Markup:
        if one.identifier is None:
            href = self._links.namespace(warehouse, one.namespace)
            return tag("a", icon("namespace"), name(".".join(one.namespace)), href=href, class_="named")
        href = self._links.table(warehouse, one.identifier)
        full = ".".join((*one.identifier.namespace, one.identifier.name))
        return tag("a", icon(one.kind), name(full), href=href, class_="named")


def short_id(transaction_id: str) -> str:
    """The beginning says when, the end tells it from its neighbours."""
    return f"{transaction_id[:8]}…{transaction_id[-6:]}"


def _kind(record: TransactionRecord, changes: Sequence[CommittedChange]) -> list[Child]:
    return [badge(f"{len(changes)} moved together", ACCENT)] if len(changes) > 1 else []


def _snapshot(one: CommittedChange) -> Child:
    found = one.pointer.summary.get("current-snapshot-id") if one.pointer is not None else None
    return None if found in (None, -1) else mono(str(found))


def _delta_version(one: CommittedChange) -> Child:
    if one.kind != Kind.DELTA or one.pointer is None:
        return None
    return str(one.pointer.summary.get("version"))


def _now(one: Touched) -> Child:
    if one.actual is None:
        return "–"
    return join(f"{one.actual:,}", join(" ", badge("moved", BAD)) if one.moved else None)


def _source(source: Any) -> str:
    return source_text(source) if isinstance(source, dict) else str(source)


def _identifier_text(identifier: Any) -> str:
    if isinstance(identifier, dict):
        return ".".join((*map(str, identifier.get("namespace") or ()), str(identifier.get("name", ""))))
    return str(identifier or "–")


def _value(value: Any) -> str:
    """One side of a requirement: what it is about is said beside it."""
    if isinstance(value, dict):
        told = {key: one for key, one in value.items() if key != "ref"}
        return ", ".join(_value(one) if len(told) == 1 else f"{key}: {_value(one)}" for key, one in told.items())
    return "nothing" if value is None else str(value)


def _requirement(requirement: Any) -> str:
    if isinstance(requirement, dict):
        ref = requirement.get("ref")
        return f"{requirement.get('type')}{f' of {ref}' if ref else ''}"
    return "version"


def _state(request: Request) -> State | None:
    asked = request.query.get("state", "")
    return State(asked) if asked in {one.value for one in activity.DECIDED} else None


def _before(request: Request) -> TransactionId | None:
    asked = request.query.get("before", "")
    return parse_transaction_id(asked) if asked else None
