"""Where a table may keep its files, for those who do not manage the warehouse.

Whoever chooses a place chooses what the table's credentials open and what its collection deletes. So a table lies where
the catalog puts it, and what it refers to lies inside of it. Only who manages the whole warehouse may say otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from lakepact.access import Role
from lakepact.catalog.delta_tables import DeltaCommit
from lakepact.catalog.errors import Forbidden
from lakepact.catalog.keys import Keys, family_of
from lakepact.catalog.needs import Asking
from lakepact.catalog.pointers import FAMILIES, Pointer, shown
from lakepact.catalog.warehouse import LOCATION_PROPERTIES, Warehouse
from lakepact.catalog.work import Draft
from lakepact.delta.actions import Add
from lakepact.delta.paths import decode_path
from lakepact.iceberg import names as words
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.locations import without_trailing_slash
from lakepact.iceberg.requests import Commit, Identifier

_POINTERS: Final = frozenset(FAMILIES.values())


class Places:
    """What one draft does to places."""

    def __init__(self, warehouse: Warehouse, keys: Keys, asking: Asking) -> None:
        self._warehouse = warehouse
        self._keys = keys
        self._asking = asking

    def check(self, draft: Draft, commits: Sequence[Commit], delta: Sequence[DeltaCommit]) -> None:
        """Raises `Forbidden` if anything lies where only who manages the warehouse may put it."""
        pointers = {
            Pointer.from_json(value).identifier: (key, value)
            for key, value in draft.writes.items()
            if value is not None and family_of(key) in _POINTERS
        }
        documents = {file.location: file.document for file in draft.files}
        for identifier, (key, value) in pointers.items():
            before = draft.seen[key].value or {}
            if value["location"] != before.get("location") and not self._is_ours(draft, identifier, value):
                raise self._forbidden(identifier, f"lie at {value['location']}")
            document = documents.get(value["metadata-location"])
            if document is not None and not before:
                self._check_properties(identifier, value["location"], document.get("properties") or {})
        for commit in commits:
            if commit.identifier in pointers:
                value = pointers[commit.identifier][1]
                # Those that somebody else has set before are as they are.
                self._check_properties(commit.identifier, value["location"], _set_properties(commit))
                self._check_files(commit.identifier, value, documents.get(value["metadata-location"]), commit)
        for change in delta:
            self._check_delta(change)

    async def check_moves(self, draft: Draft, commits: Sequence[Commit]) -> None:
        """The same for what a commit says outright, before anything is planned."""
        for commit in commits:
            location = _set_location(commit)
            if location is None or commit.identifier is None:
                continue
            identifier = commit.identifier
            pointer = await self._asking.names.find(draft, identifier)
            if pointer is None:
                [cell] = await draft.read(self._keys.namespace(identifier.namespace))
                properties = (cell.value or {}).get("properties", {})
                expected = self._warehouse.new_location(identifier, _assigned_uuid(commit), properties)
            else:
                expected = pointer.location
            if location != expected:
                raise self._forbidden(identifier, f"lie at {location}")

    def _is_ours(self, draft: Draft, identifier: Identifier, value: Mapping[str, Any]) -> bool:
        """Whether the catalog has chosen this place."""
        namespace = draft.seen.get(self._keys.namespace(identifier.namespace))
        properties = (namespace.value or {}).get("properties", {}) if namespace is not None else {}
        return bool(value["location"] == self._warehouse.new_location(identifier, value["uuid"], properties))

    def _check_properties(self, identifier: Identifier, location: str, properties: Mapping[str, str]) -> None:
        for name in LOCATION_PROPERTIES:
            if name in properties and not self._warehouse.lies_in(
                properties[name], [self._warehouse.blob_name(location)]
            ):
                raise self._forbidden(identifier, f"have {name} {properties[name]}")

    def _check_files(
        self, identifier: Identifier, value: Mapping[str, Any], document: JsonObject | None, commit: Commit
    ) -> None:
        own = self._warehouse.places_of(value["location"], (document or {}).get("properties") or {})
        for path in named_files(commit):
            if not self._warehouse.lies_in(path, own):
                raise self._forbidden(identifier, f"refer to {path}")

    def check_published(self, pointer: Pointer, before: JsonObject | None, after: JsonObject) -> None:
        """The same for what a transaction has made of a table (None: of nothing) by the time it is published."""
        location = without_trailing_slash(after["location"])
        if before is not None and location != without_trailing_slash(before["location"]):
            raise self._forbidden(pointer.identifier, f"lie at {location}")
        self.check_document(pointer, before or {}, after)

    def check_document(self, pointer: Pointer, before: JsonObject, after: JsonObject) -> None:
        """The same for a table whose next version comes as a whole document."""
        identifier, location = pointer.identifier, pointer.location
        old, new = before.get("properties") or {}, after.get("properties") or {}
        self._check_properties(identifier, location, {name: new[name] for name in new if new[name] != old.get(name)})
        own = self._warehouse.places_of(location, new)
        known = set(_files_of(before))
        for path in _files_of(after):
            if path not in known and not self._warehouse.lies_in(path, own):
                raise self._forbidden(identifier, f"refer to {path}")

    def _check_delta(self, change: DeltaCommit) -> None:
        for action in change.actions:
            if isinstance(action, Add):
                path = decode_path(action.path)
                if "://" in path or path.startswith(("/", "file:")) or ".." in path.split("/"):
                    name = shown(change.table) if isinstance(change.table, Identifier) else change.table
                    raise Forbidden(
                        f"Delta table {name} cannot refer to {path[:300]}: a file lies inside its table, unless "
                        f"whoever adds it has the role manage on warehouse {self._asking.warehouse}"
                    )

    def _forbidden(self, identifier: Identifier, what: str) -> Forbidden:
        return Forbidden(
            f"table {shown(identifier)} cannot {what[:300]}: only who has the role {Role.MANAGE.word} on warehouse "
            f"{self._asking.warehouse} may choose a place outside of the table's own. Leave the location out"
        )


def named_files(commit: Commit) -> list[str]:
    """The files that a commit brings into a table's metadata."""
    found: list[str] = []
    for update in commit.updates:
        if update.action == words.ADD_SNAPSHOT:
            found += update.body["snapshot"].get("manifests") or ()
            path = update.body["snapshot"].get("manifest-list")
        elif update.action in (words.SET_STATISTICS, words.SET_PARTITION_STATISTICS):
            body = update.body
            nested = body.get("statistics") or body.get("partition-statistics") or {}
            path = nested.get("statistics-path")
        else:
            continue
        if isinstance(path, str):
            found.append(path)
    return found


def _files_of(metadata: JsonObject) -> Iterator[str]:
    """The files that a table's metadata refers to."""
    for snapshot in metadata.get("snapshots") or ():
        yield from snapshot.get("manifests") or ()
        if "manifest-list" in snapshot:
            yield snapshot["manifest-list"]
    for kind in ("statistics", "partition-statistics"):
        for one in metadata.get(kind) or ():
            yield one["statistics-path"]


def _set_properties(commit: Commit) -> dict[str, str]:
    found: dict[str, str] = {}
    for update in commit.updates:
        if update.action == words.SET_PROPERTIES:
            found |= update.body["updates"]
    return found


def _set_location(commit: Commit) -> str | None:
    places = [update.body["location"] for update in commit.updates if update.action == words.SET_LOCATION]
    return without_trailing_slash(places[-1]) if places else None


def _assigned_uuid(commit: Commit) -> str:
    return next((str(one.body["uuid"]).lower() for one in commit.updates if one.action == words.ASSIGN_UUID), "")
