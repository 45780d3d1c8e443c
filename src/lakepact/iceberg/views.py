"""View metadata: how a view begins, and the fold over its updates. Java's `ViewMetadata.Builder`, in meaning.

A view has versions as a table has snapshots. They are numbered from 1, an equal one is not added twice, and old ones
are let go: the property `version.history.num-entries` says how many stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from lakepact.errors import Unreadable
from lakepact.iceberg import names
from lakepact.iceberg.errors import InvalidUpdate
from lakepact.iceberg.fields import INT32_MAX, JsonObject
from lakepact.iceberg.finish import Applied
from lakepact.iceberg.logs import integer_property
from lakepact.iceberg.parse import Update
from lakepact.iceberg.schemas import same_schema

FORMAT: Final = 1
_FIRST_VERSION: Final = 1
_HISTORY: Final = 10


def create_view_metadata(
    *, schema: JsonObject, version: JsonObject, properties: dict[str, str], location: str, uuid: str, now_ms: int
) -> JsonObject:
    """The first metadata of a view, from a checked schema and version. Both get their first id."""
    if not version["representations"]:
        raise InvalidUpdate("a view needs at least one representation, such as a query in SQL")
    empty: JsonObject = {
        "view-uuid": uuid,
        "format-version": FORMAT,
        "location": location,
        "properties": dict(properties),
        "schemas": [],
        "current-version-id": 0,
        "versions": [],
        "version-log": [],
    }
    draft = ViewDraft(None, empty, now_ms)
    _add_schema(draft, {"schema": schema})
    _add_version(draft, {"view-version": {**version, "version-id": _FIRST_VERSION, "schema-id": names.LAST_ADDED}})
    _set_current_version(draft, {"view-version-id": names.LAST_ADDED})
    return _finish(draft).metadata


def apply_to_view(metadata: JsonObject, updates: Iterable[Update], now_ms: int) -> Applied:
    """The view after these updates, in their order. The input is never changed."""
    draft = ViewDraft(metadata, dict(metadata), now_ms)
    for update in updates:
        _ACTIONS[update.action](draft, update.body)
    return _finish(draft)


def read_view(document: object) -> JsonObject:
    """A stored document as the fold needs it. Raises `Unreadable` for what is not view metadata."""
    if not isinstance(document, dict) or document.get("format-version") != FORMAT:
        raise Unreadable(f"this is not view metadata of format {FORMAT}")
    for name, kind in (
        ("view-uuid", str),
        ("location", str),
        ("current-version-id", int),
        ("schemas", list),
        ("versions", list),
        ("version-log", list),
    ):
        if not isinstance(document.get(name), kind):
            raise Unreadable(f"view metadata: {name!r} is missing or damaged")
    if not any(version["version-id"] == document["current-version-id"] for version in document["versions"]):
        raise Unreadable("view metadata: the current version does not exist")
    return document


class ViewDraft:
    """A view's next metadata while updates are applied to it."""

    def __init__(self, base: JsonObject | None, document: JsonObject, now_ms: int) -> None:
        self.base = base
        self.document = document
        self.now_ms = now_ms
        self.last_schema_id: int | None = None
        self.last_version_id: int | None = None
        self.added_version_ids: set[int] = set()
        self.log_entry: JsonObject | None = None
        """The version this request makes current. However many it passes on the way, one is seen."""

    def append(self, name: str, value: Any) -> None:
        self.document[name] = [*self.document[name], value]

    def version(self, version_id: int) -> JsonObject | None:
        return next((one for one in self.document["versions"] if one["version-id"] == version_id), None)

    @property
    def properties(self) -> dict[str, str]:
        found: dict[str, str] = self.document.get("properties") or {}
        return found


# --- the updates ---


def _assign_uuid(draft: ViewDraft, body: JsonObject) -> None:
    if draft.document["view-uuid"].lower() != body["uuid"].lower():
        raise InvalidUpdate("Cannot reassign uuid")


def _upgrade_format_version(draft: ViewDraft, body: JsonObject) -> None:
    if body["format-version"] != FORMAT:
        raise InvalidUpdate(f"upgrade-format-version: views have format {FORMAT}, not {body['format-version']}")


def _set_location(draft: ViewDraft, body: JsonObject) -> None:
    draft.document["location"] = body["location"]


def _set_properties(draft: ViewDraft, body: JsonObject) -> None:
    if body["updates"]:
        draft.document["properties"] = {**draft.properties, **body["updates"]}


def _remove_properties(draft: ViewDraft, body: JsonObject) -> None:
    gone = set(body["removals"])
    if gone & draft.properties.keys():
        kept = {name: value for name, value in draft.properties.items() if name not in gone}
        draft.document["properties"] = kept


def _add_schema(draft: ViewDraft, body: JsonObject) -> None:
    """A schema the view has already is not added, and "-1" does not name it."""
    schema, existing = body["schema"], draft.document["schemas"]
    if any(same_schema(old, schema) for old in existing):
        return
    schema_id = max((old.get("schema-id", 0) + 1 for old in existing), default=0)
    draft.append("schemas", {**schema, "schema-id": schema_id})
    draft.last_schema_id = schema_id


def _add_version(draft: ViewDraft, body: JsonObject) -> None:
    version, existing = body["view-version"], draft.document["versions"]
    if (old := next((old for old in existing if _same_version(old, version)), None)) is not None:
        added = old["version-id"] in draft.added_version_ids
        draft.last_version_id = old["version-id"] if added else None
        return
    if version["schema-id"] == names.LAST_ADDED:
        if draft.last_schema_id is None:
            raise InvalidUpdate("Cannot set last added schema: no schema has been added")
        version = {**version, "schema-id": draft.last_schema_id}
    if all(schema.get("schema-id", 0) != version["schema-id"] for schema in draft.document["schemas"]):
        raise InvalidUpdate(f"add-view-version: there is no schema {version['schema-id']}")
    _check_dialects(version)
    version_id = max([version["version-id"], *(old["version-id"] + 1 for old in existing)])
    if not _FIRST_VERSION <= version_id <= INT32_MAX:
        raise InvalidUpdate(f"add-view-version: version-id {version_id} is out of range; send 1")
    draft.append("versions", {**version, "version-id": version_id})
    draft.added_version_ids.add(version_id)
    draft.last_version_id = version_id


def _same_version(one: JsonObject, other: JsonObject) -> bool:
    """Whether two versions mean the same. When and under which id they were made does not count."""
    ignored = ("version-id", "timestamp-ms")
    return {name: value for name, value in one.items() if name not in ignored and value is not None} == {
        name: value for name, value in other.items() if name not in ignored and value is not None
    }


def _check_dialects(version: JsonObject) -> None:
    seen: set[str] = set()
    for dialect in _dialects(version):
        if dialect in seen:
            raise InvalidUpdate(f"Invalid view version: Cannot add multiple queries for dialect {dialect}")
        seen.add(dialect)


def _dialects(version: JsonObject) -> list[str]:
    return [one["dialect"].lower() for one in version["representations"] if one["type"].lower() == "sql"]


def _set_current_version(draft: ViewDraft, body: JsonObject) -> None:
    version_id = body["view-version-id"]
    if version_id == names.LAST_ADDED:
        if draft.last_version_id is None:
            raise InvalidUpdate("Cannot set last version id: no current version id has been set")
        version_id = draft.last_version_id
    if version_id == draft.document["current-version-id"]:
        return
    version = draft.version(version_id)
    if version is None:
        raise InvalidUpdate(f"set-current-view-version: there is no version {version_id}")
    draft.document["current-version-id"] = version_id
    # Going back to an older version happens now, not when that version was made.
    changed_ms = version["timestamp-ms"] if version_id in draft.added_version_ids else draft.now_ms
    draft.log_entry = {"timestamp-ms": changed_ms, "version-id": version_id}


_ACTIONS: Final[Mapping[str, Callable[[ViewDraft, JsonObject], None]]] = {
    names.ASSIGN_UUID: _assign_uuid,
    names.UPGRADE_FORMAT_VERSION: _upgrade_format_version,
    names.ADD_SCHEMA: _add_schema,
    names.SET_LOCATION: _set_location,
    names.SET_PROPERTIES: _set_properties,
    names.REMOVE_PROPERTIES: _remove_properties,
    names.ADD_VIEW_VERSION: _add_version,
    names.SET_CURRENT_VIEW_VERSION: _set_current_version,
}


# --- the end ---


def _finish(draft: ViewDraft) -> Applied:
    if draft.log_entry is not None:
        draft.append("version-log", draft.log_entry)
    if draft.base is not None and draft.document == draft.base:
        return Applied(draft.base, changed=False)
    document = draft.document
    if draft.base is not None:
        _check_no_dialect_lost(draft, draft.base)
    history = integer_property(draft.properties, names.VERSION_HISTORY, _HISTORY)
    if history <= 0:
        raise InvalidUpdate(f"property {names.VERSION_HISTORY!r} must be greater than 0, not {history}")
    current = document["current-version-id"]
    # What this request added stays, and so does the current version, however few the property allows.
    keep = max(history, len(draft.added_version_ids | {current}))
    if len(document["versions"]) > keep:
        _let_go(document, current, keep)
    return Applied(document, changed=True)


def _check_no_dialect_lost(draft: ViewDraft, base: JsonObject) -> None:
    """An engine that could read the view must not find it gone because another engine replaced it."""
    if draft.properties.get(names.DROP_DIALECT_ALLOWED, "false").lower() == "true":
        return
    before, after = draft.version(base["current-version-id"]), draft.version(draft.document["current-version-id"])
    old, new = set(_dialects(before or {"representations": []})), set(_dialects(after or {"representations": []}))
    if not old <= new:
        raise InvalidUpdate(
            f"Cannot replace view due to loss of view dialects ({names.DROP_DIALECT_ALLOWED}=false):\n"
            f"Previous dialects: [{', '.join(sorted(old))}]\nNew dialects: [{', '.join(sorted(new))}]"
        )


def _let_go(document: JsonObject, current: int, keep: int) -> None:
    """Keep the current version and the newest others. History before a version that is gone goes too."""
    newest = sorted(document["versions"], key=lambda version: -int(version["version-id"]))
    first = [version for version in newest if version["version-id"] == current]
    others = [version for version in newest if version["version-id"] != current]
    document["versions"] = [*first, *others[: keep - 1]]
    kept_ids = {version["version-id"] for version in document["versions"]}
    log: list[JsonObject] = []
    for entry in document["version-log"]:
        if entry["version-id"] in kept_ids:
            log.append(entry)
        else:
            log.clear()
    document["version-log"] = log
