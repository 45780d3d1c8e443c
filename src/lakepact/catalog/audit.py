"""The audit trail read back: the newest lines first, a page at a time, with bounded work for each page.

Files of several processes lie beside one another, and each holds the lines of some seconds. They are read in the order
of their newest lines, and a line is given once no file that is not read yet can hold a newer one. So pages are in the
order of time whoever has written the lines, and a page ends where the work for one request does, with lines or without.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Final, NamedTuple

import orjson

from lakepact.access.rules import RULES
from lakepact.catalog.errors import BadRequest
from lakepact.catalog.trail import AUDIT, LONGEST_MS, Outcome, place_of, process_of, span_of
from lakepact.iceberg.fields import JsonObject
from lakepact.kernel.ports import BlobStore, Tasks

_LISTED: Final = 1_000
_MOST_LISTINGS: Final = 64
_MOST_FILES: Final = 256
_MOST_BYTES: Final = 16 << 20
"""For one page, each of them. Beyond it the page ends, and the next one goes on."""

_FILES_AT_ONCE: Final = 16
_BYTES_AT_ONCE: Final = 1 << 20

_AHEAD_MS: Final = 300_000
"""How far clocks may be ahead of this one. Lines that are dated later are found once their time has come."""

_SECOND_MS: Final = 1_000
_FIRST_WIDTH_MS: Final = 3_600_000
_WIDER: Final = 8

_TELLS_NAMES: Final = frozenset({"identifier", "name", "namespace", "new", "on", "to"})
_TEXTS: Final = ("operation", "outcome")
_LISTS: Final = ("tables", "namespaces")
_TOKEN: Final = re.compile(r"([0-9]{1,15})\.([0-9]{1,9})\.([^/]{0,400})")
_MILLISECONDS: Final = re.compile(r"[0-9]{12,15}")


class Position(NamedTuple):
    """Where a line is. Lines of the same millisecond are in the order of their files, and then as they are in them."""

    at_ms: int
    file: str = ""
    number: int = 0

    @property
    def token(self) -> str:
        return f"{self.at_ms}.{self.number}.{self.file}"

    @staticmethod
    def is_token(text: str) -> bool:
        """Whether a page has said this, and nobody has written it."""
        return _TOKEN.fullmatch(text) is not None

    @classmethod
    def parse(cls, text: str) -> Position:
        """A page token, a moment as people write it, or its milliseconds since 1970. Lines before it are meant."""
        token = _TOKEN.fullmatch(text)
        if token is not None:
            return cls(int(token[1]), token[3], int(token[2]))
        if _MILLISECONDS.fullmatch(text):
            return cls(int(text))
        try:
            moment = datetime.fromisoformat(text)
            moment = moment.replace(tzinfo=moment.tzinfo or UTC)
            return cls(int(moment.timestamp() * 1000))
        except (ValueError, OverflowError):
            raise BadRequest(
                f"before is a moment such as 2026-01-31T12:00:00Z (UTC unless it says otherwise; write a + as %2B), "
                f"milliseconds since 1970, or the token of a page, not {text[:60]!r}"
            ) from None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which lines: those that are as all of these say."""

    principal: str | None = None
    operation: str | None = None
    outcome: Outcome | None = None
    table: str | None = None
    """With dots, as in the lines."""

    of_account: bool = True
    """Also those that are about the account and no warehouse of it: what was done to its tokens."""

    def fits(self, line: JsonObject) -> bool:
        return (
            (self.principal is None or line.get("principal") == self.principal)
            and (self.operation is None or line["operation"] == self.operation)
            and (self.outcome is None or line["outcome"] == self.outcome)
            and (self.table is None or self.table in tables_in(line))
            and (self.of_account or line["operation"] in RULES)
        )


@dataclass(frozen=True, slots=True)
class AuditPage:
    lines: tuple[JsonObject, ...]
    """The newest first, each as it was written."""

    damaged: int
    """How many lines cannot be read. They are left out."""

    following: Position | None
    """Where the next page begins. It may be empty, if this one has ended because of the work it took."""


def tables_in(line: Mapping[str, Any]) -> list[str]:
    """The tables and views that a line is about, those too that were only coming to be, with dots."""
    said = line.get("detail") or {}
    found = [*line["tables"], *said.get("new", "").split(","), said.get("identifier", ""), said.get("to", "")]
    if "name" in said:
        found += (f"{namespace}.{said['name']}" for namespace in line["namespaces"])
    return list(dict.fromkeys(one for one in found if one))


def about(line: Mapping[str, Any]) -> str:
    """What a line is about, in a few words: names, and what else the request said."""
    said = line.get("detail") or {}
    # A new namespace is not among those that were there.
    new = [said["namespace"]] if "namespace" in said else []
    names = tables_in(line) or new or [one for one in line["namespaces"] if one]
    words = (f"{name}={value}" for name, value in said.items() if not names or name not in _TELLS_NAMES)
    return " ".join(one for one in (", ".join(names), *words) if one)


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    first_ms: int
    last_ms: int
    size: int


@dataclass(frozen=True, slots=True)
class _Line:
    at: Position
    text: bytes
    value: JsonObject | None
    """None: it is damaged. Then it counts as one of the newest of its file."""


@dataclass(slots=True)
class _Reading:
    """What one page has found by now."""

    before: Position
    limit: int
    lines: list[_Line] = field(default_factory=list)
    damaged: int = 0
    damaged_before_last: int = 0
    """How many of these were met before the last line of the page: the others are for the next one to count."""

    _waiting: list[_Line] = field(default_factory=list)
    """Oldest first."""

    _seen: dict[tuple[str, bytes], str] = field(default_factory=dict)
    """The lines of the same millisecond, by whose they are, and the files they were in. One that a process has written
    into two of its files, since an answer was lost, is one line."""

    _seen_ms: int = -1

    def add(self, files: Iterable[Iterable[_Line]]) -> None:
        self._waiting.extend(chain.from_iterable(files))
        self._waiting.sort(key=lambda one: one.at)

    def take_down_to(self, floor_ms: int) -> bool:
        """Take the lines that are newer than this; whether there are more of them than the page holds."""
        while self._waiting and self._waiting[-1].at.at_ms > floor_ms:
            line = self._waiting.pop()
            if line.at.at_ms != self._seen_ms:
                self._seen_ms, self._seen = line.at.at_ms, {}
            written = self._seen.setdefault((process_of(line.at.file), line.text), line.at.file)
            if (written != line.at.file and line.value is not None) or line.at >= self.before:
                continue
            if line.value is None:
                self.damaged += 1
            elif len(self.lines) == self.limit:
                return True
            else:
                self.lines.append(line)
                self.damaged_before_last = self.damaged
        return False

    def page(self, following: Position | None = None) -> AuditPage:
        lines = tuple(one.value for one in self.lines if one.value is not None)
        return AuditPage(lines, self.damaged, following)

    def full_page(self) -> AuditPage:
        self.damaged = self.damaged_before_last
        return self.page(self.lines[-1].at)


class AuditReader:
    def __init__(self, blobs: BlobStore, tasks: Tasks, now_ms: int) -> None:
        """One serves one page."""
        self._blobs = blobs
        self._tasks = tasks
        self._now_ms = now_ms
        self._listings = 0

    async def page(self, before: Position | None, wanted: Wanted, limit: int) -> AuditPage:
        newest = Position(self._now_ms + _AHEAD_MS)
        reading = _Reading(newest if before is None else min(before, newest), limit)
        files = read_bytes = 0
        async for some, floor_ms in self._some_files(reading.before.at_ms):
            reading.add(await self._tasks.all([self._lines(file, reading.before.at_ms, wanted) for file in some]))
            if reading.take_down_to(floor_ms):
                return reading.full_page()
            files += len(some)
            read_bytes += sum(file.size for file in some)
            reached = Position(floor_ms + 1)
            spent = files >= _MOST_FILES or read_bytes >= _MOST_BYTES or self._listings >= _MOST_LISTINGS
            # Many files may lie across the place where the page begins. They are read all: it must go on from there.
            if spent and reached < reading.before and floor_ms > 0:
                return reading.page(reached)
        return reading.page()

    async def _some_files(self, before_ms: int) -> AsyncIterator[tuple[list[_File], int]]:
        """Files with lines from before this moment, or at it, by their newest lines; and the newest moment that a line
        in any later file can be of."""
        high_ms, width_ms = before_ms + LONGEST_MS + 1, _FIRST_WIDTH_MS
        while high_ms > 0:
            low_ms = max(high_ms - width_ms, 0)
            found = await self._ending_in(low_ms, high_ms, fewer=width_ms > _SECOND_MS)
            if found is None:
                width_ms //= _WIDER
                continue
            files = [file for file in reversed(found) if file.first_ms <= before_ms]
            if not files:
                yield [], low_ms - 1
            while some := _together(files):
                files = files[len(some) :]
                yield some, files[0].last_ms if files else low_ms - 1
            high_ms = low_ms
            if len(found) < _LISTED // _WIDER:
                width_ms *= _WIDER

    async def _ending_in(self, low_ms: int, high_ms: int, *, fewer: bool) -> list[_File] | None:
        """Files whose newest line is of this time, oldest first. None: they are many, and `fewer` are asked for."""
        found: list[_File] = []
        after, end = place_of(low_ms), place_of(high_ms)
        while True:
            self._listings += 1
            page = await self._blobs.list(f"{AUDIT}/", after, _LISTED)
            for entry in page:
                span = span_of(entry.name)
                if span is not None and entry.name < end:
                    found.append(_File(entry.name, *span, entry.size))
            if len(page) < _LISTED or page[-1].name >= end:
                return sorted(found, key=lambda file: file.last_ms)
            if fewer:
                return None
            after = page[-1].name

    async def _lines(self, file: _File, before_ms: int, wanted: Wanted) -> list[_Line]:
        whose = file.name.rpartition("/")[2]
        lines = []
        for number, text in enumerate((await self._blobs.get(file.name) or b"").splitlines(), 1):
            value = _checked(text, file)
            at_ms = file.last_ms if value is None else value["at-ms"]
            if at_ms <= before_ms and (value is None or wanted.fits(value)):
                lines.append(_Line(Position(at_ms, whose, number), text, value))
        return lines


def _together(files: Sequence[_File]) -> list[_File]:
    """The next files that are read side by side."""
    some: list[_File] = []
    for file in files[:_FILES_AT_ONCE]:
        if some and sum(one.size for one in some) + file.size > _BYTES_AT_ONCE:
            break
        some.append(file)
    return some


def _checked(text: bytes, file: _File) -> JsonObject | None:
    """The line, if it is one: all that others count on is there, and it is of the time that its file is of."""
    try:
        line = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(line, dict):
        return None
    detail = line.get("detail")
    sound = (
        isinstance(line.get("at-ms"), int)
        and file.first_ms <= line["at-ms"] <= file.last_ms
        and all(isinstance(line.get(one), str) for one in _TEXTS)
        and all(_are_texts(line.get(one)) for one in _LISTS)
        and (detail is None or (isinstance(detail, dict) and _are_texts(list(detail.values()))))
        and all(line.get(one) is None or isinstance(line[one], str) for one in ("principal", "transaction-id"))
    )
    return line if sound else None


def _are_texts(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(one, str) for one in values)
