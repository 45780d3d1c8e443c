"""Run reports: what a pipeline says about a run after it ended, and what the server itself knows about that run.

A run is a transaction, so its report is stored under the transaction's id, with the date of that id:
`_catalog/runs/<date>/<transaction id>.json`. It is written once.

The body of a report is a claim of its author: anybody who may begin a transaction may write one. So the server stores
its own facts beside it (`RunFacts`): the state and the commit time of the transaction, the tables that its record has
written and read, and which of the named tables the author could see. `confirmed_report` reduces a report to what these
facts support. Pages show nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Self, TypeAlias

import orjson

from lakepact.catalog.cells import a_look_each
from lakepact.catalog.errors import BadRequest
from lakepact.catalog.keys import family_of
from lakepact.catalog.lineage import LINEAGE, VERIFIED, is_table_id, written_names
from lakepact.catalog.operations import Parts
from lakepact.catalog.pointers import FAMILIES, Change, Kind, Pointer
from lakepact.catalog.receipts import changes_of
from lakepact.catalog.warehouse import OWN_FOLDER
from lakepact.errors import IllegalKey
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.requests import Identifier
from lakepact.kernel.identity import TransactionId, timestamp_ms
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell, State, TransactionRecord
from lakepact.limits import check_run_report

FORMAT: Final = 2
"""Since format 2 a report holds the server's facts. In an older one a member of that name was written by its author."""

MOST_BYTES: Final = 1 << 20
PRINCIPAL: Final = "principal"
"""The owner of the transaction, if the server knows it. The server sets it, whatever the report says."""

FACTS: Final = "transaction"
"""The member of a stored report that holds the server's own facts."""

LINKED: Final = "linked"
"""Set in a confirmed report: whether the table of a check is one that the facts support."""

_MOST_NAMES: Final = 2_000
_POINTERS: Final = frozenset(FAMILIES.values())
_FINAL: Final = frozenset(state.value for state in State if state.final)
_CLAIMS: Final = frozenset({"failed", "conflict", "dry-run", "already-committed"})
"""Reasons why a run has committed nothing. Its author knows them, and the record does not."""

UNKNOWN: Final = "unknown"
"""The state of a run whose record is gone, and whose report was stored before the run had ended."""

Sees: TypeAlias = Callable[[Pointer], bool]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What the server knows about a run. Tables are named as reports name them: levels joined with dots."""

    state: str
    """The state of the transaction's record; `unknown` if the record is gone."""

    decided_ms: int | None = None
    written: frozenset[str] = frozenset()
    """Tables that the commit has written."""

    read: frozenset[str] = frozenset()
    """Tables that the transaction has read, according to its record, and that its author could see."""

    visible: frozenset[str] = frozenset()
    """Tables that the report names and that its author could see when it was reported."""

    @property
    def final(self) -> bool:
        return self.state in _FINAL

    @property
    def committed(self) -> bool:
        return self.state == State.COMMITTED

    def to_json(self) -> JsonObject:
        names = {"written": self.written, "read": self.read, "visible": self.visible}
        return {
            "state": self.state,
            "decided-ms": self.decided_ms,
            **{field: sorted(found) for field, found in names.items()},
        }

    @classmethod
    def from_report(cls, report: Mapping[str, Any]) -> Self | None:
        """The facts stored with this report; None if it was stored by a release that kept none."""
        facts = report.get(FACTS)
        if report.get("format") != FORMAT or not isinstance(facts, dict):
            return None
        names = {field: frozenset(facts[field]) for field in ("written", "read", "visible")}
        return cls(facts["state"], facts["decided-ms"], **names)


def day_of(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d")


def folder_of(day: str) -> str:
    """Below it are the reports of runs that began on this day, in the order of their ids."""
    return f"{OWN_FOLDER}/runs/{day}/"


def report_name(transaction_id: TransactionId) -> str:
    return f"{folder_of(day_of(timestamp_ms(transaction_id)))}{transaction_id}.json"


def checked_report(
    body: JsonObject, transaction_id: TransactionId, principal: str | None, facts: RunFacts
) -> JsonObject:
    """The report as it is stored: the body of the author, and what the server knows."""
    for field in ("pipeline", "run-id", "state"):
        if not isinstance(body.get(field), str) or not body[field] or len(body[field]) > 200:
            raise BadRequest(f"a report of a run has a text {field!r} of at most 200 characters")
    for field in ("stages", "checks", "inputs"):
        if not isinstance(body.get(field, []), list):
            raise BadRequest(f"{field!r} of a report of a run is a list")
    check_run_report(body)
    claims = {field: value for field, value in body.items() if field != PRINCIPAL}
    owner = {} if principal is None else {PRINCIPAL: principal}
    return {**claims, **owner, "format": FORMAT, "transaction-id": transaction_id, FACTS: facts.to_json()}


def report_bytes(report: JsonObject) -> bytes:
    data = orjson.dumps({field: value for field, value in report.items() if field != FACTS})
    if len(data) > MOST_BYTES:
        raise BadRequest(f"the report has {len(data):,} bytes; the limit is {MOST_BYTES:,}. Leave samples out")
    return orjson.dumps(report)


def without_facts(report: bytes) -> JsonObject:
    """A stored report without the server's facts, for comparing: these change until the transaction has ended."""
    document = orjson.loads(report)
    return {field: value for field, value in document.items() if field not in (FACTS, "format")}


async def run_facts(parts: Parts, record: TransactionRecord, report: Mapping[str, Any], sees: Sees) -> RunFacts:
    """What the record says about a run. `sees`: whether the author may see a table."""
    visible = await _visible(parts, _names_in(report), sees)
    if record.state is not State.COMMITTED:
        return RunFacts(record.state.value, record.decided_ms, visible=visible)
    written = {
        name
        for change in changes_of(record.writes)
        if change.identifier is not None and change.pointer is not None and change.change is not Change.DROP
        for name in written_names(change.identifier)
    }
    read = await _read_by(parts, record, sees)
    return RunFacts(record.state.value, record.decided_ms, frozenset(written), read, visible)


def confirmed_report(report: Mapping[str, Any], facts: RunFacts) -> JsonObject:
    """This report without any table that the facts do not support.

    A committed run keeps the tables of its record. Any other run has changed nothing, so its record does not say what
    it was about to write: it keeps the tables that its author could see. A check of a stage is kept in any case, for a
    failed run explains itself with it; `LINKED` says whether its table may be linked.
    """
    written = facts.written if facts.committed else facts.visible
    known = facts.written | facts.read if facts.committed else facts.visible
    stages = [one for one in _list(report.get("stages")) if isinstance(one, dict) and isinstance(one.get("name"), str)]
    names = [one["name"] for one in stages]
    internal = {one["name"] for one in stages if one.get("target") is None} - {
        one["target"] for one in stages if isinstance(one.get("target"), str)
    }

    def supported(name: object) -> bool:
        return isinstance(name, str) and (name in known or name in internal)

    def entries(document: Mapping[str, Any], field: str) -> list[JsonObject]:
        return [one for one in _list(document.get(field)) if isinstance(one, dict)]

    def checks(document: Mapping[str, Any]) -> list[JsonObject]:
        found = [one for one in entries(document, "checks") if supported(one.get("table")) or one.get("table") in names]
        return [{**one, LINKED: one["table"] in known} for one in found]

    def inputs() -> list[JsonObject]:
        found = [one for one in entries(report, "inputs") if supported(one.get("table"))]
        return [{**one, "used-by": [user for user in _list(one.get("used-by")) if user in names]} for one in found]

    def stage(one: JsonObject) -> JsonObject:
        target = one.get("target")
        has_target = target is None or (isinstance(target, str) and target in written)
        kept = {field: value for field, value in one.items() if field != "target" or has_target}
        reads = [name for name in _list(one.get("reads")) if supported(name)]
        return {**kept, "reads": reads, **({"checks": checks(one)} if "checks" in one else {})}

    rest = {field: value for field, value in report.items() if field != FACTS}
    return {
        **rest,
        "state": _state(report.get("state"), facts),
        "stages": [stage(one) for one in stages],
        **({"checks": checks(report)} if "checks" in report else {}),
        **({"inputs": inputs()} if "inputs" in report else {}),
    }


def _state(claimed: object, facts: RunFacts) -> str:
    if facts.committed or facts.state == UNKNOWN:
        return facts.state
    if not facts.final:
        return "running"
    return claimed if isinstance(claimed, str) and claimed in _CLAIMS else facts.state


async def _read_by(parts: Parts, record: TransactionRecord, sees: Sees) -> frozenset[str]:
    """Tables that the record depends on, and inputs that the server verified when it committed."""
    keys = {read.key for read in record.reads if family_of(read.key) in _POINTERS}
    source = (record.answer or {}).get("source") or {}
    if source.get(LINEAGE) == VERIFIED:
        ids = {str(one.get("table-uuid")).lower() for one in _list(source.get("inputs")) if isinstance(one, dict)}
        keys |= {key for id in ids if is_table_id(id) for key in parts.keys.of_any_kind(id).values()}
    return frozenset(name for one in await _pointers(parts, keys, sees) for name in written_names(one.identifier))


async def _visible(parts: Parts, names: Iterable[str], sees: Sees) -> frozenset[str]:
    wanted: dict[Key, str] = {}
    for name in names:
        *namespace, last = name.split(".")
        if namespace and all((*namespace, last)):
            wanted[parts.keys.name(Identifier(tuple(namespace), last))] = name
    cells = await _read(parts, list(wanted))
    keys = {
        parts.keys.of_any_kind(str(cell.value["id"]))[FAMILIES[Kind(cell.value["kind"])]]: wanted[key]
        for key, cell in cells.items()
        if cell.value is not None
    }
    pointers = await _pointers(parts, keys, sees)
    return frozenset(keys[parts.keys.of_any_kind(one.id)[FAMILIES[one.kind]]] for one in pointers)


async def _pointers(parts: Parts, keys: Iterable[Key], sees: Sees) -> list[Pointer]:
    cells = await _read(parts, sorted(keys))
    found = (Pointer.of(cell) for cell in cells.values())
    return [one for one in found if one is not None and sees(one)]


async def _read(parts: Parts, keys: Sequence[Key]) -> dict[Key, Cell]:
    """These cells. A name in a report may be one that no table can have; it is left out."""
    found: dict[Key, Cell] = {}
    for some in a_look_each(keys):
        try:
            found |= await parts.store.read(some)
        except IllegalKey:
            for key in some:
                try:
                    found |= await parts.store.read([key])
                except IllegalKey:
                    continue
    return found


def _names_in(report: Mapping[str, Any]) -> list[str]:
    """Every text in a report that may name a table, up to a limit."""

    def texts(value: Any) -> Iterator[str]:
        documents = (one for one in _list(value) if isinstance(one, dict))
        for one in documents:
            values = (one.get("name"), one.get("target"), one.get("table"), *_list(one.get("reads")))
            yield from (text for text in values if isinstance(text, str) and "." in text and len(text) <= 1_000)
            yield from texts(one.get("checks"))

    found = dict.fromkeys(name for field in ("stages", "inputs", "checks") for name in texts(report.get(field)))
    return list(found)[:_MOST_NAMES]


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()
