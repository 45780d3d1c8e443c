"""Updates of the table as a whole: uuid, format version, location, properties, statistics, encryption keys."""

from __future__ import annotations

from lakepact.iceberg.draft import Draft
from lakepact.iceberg.errors import InvalidUpdate
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.locations import without_trailing_slash
from lakepact.iceberg.names import NEWEST_FORMAT


def assign_uuid(draft: Draft, body: JsonObject) -> None:
    """Only a table that is being created gets a uuid. The name of a table must not lead to another one silently."""
    current: str | None = draft.document.get("table-uuid")
    if draft.base is not None and current is not None and current.lower() != body["uuid"].lower():
        raise InvalidUpdate(f"assign-uuid: the table has uuid {current}, which never changes")
    if current is None or current.lower() != body["uuid"].lower():
        draft.document["table-uuid"] = body["uuid"]


def upgrade_format_version(draft: Draft, body: JsonObject) -> None:
    old, new = draft.format_version, body["format-version"]
    if new > NEWEST_FORMAT:
        raise InvalidUpdate(f"upgrade-format-version: format {new} is not supported; the newest is {NEWEST_FORMAT}")
    if new < old:
        raise InvalidUpdate(f"upgrade-format-version: the table has format {old} and cannot go back to {new}")
    if new == old:
        return
    document = draft.document
    document["format-version"] = new
    if old < 2 <= new:
        # What was written before has sequence number 0, and needs none of the copies for readers of format 1.
        document["last-sequence-number"] = 0
        document.pop("schema", None)
        document.pop("partition-spec", None)
    if old < 3 <= new:
        document["next-row-id"] = 0
        draft.current_snapshot_id = draft.current_snapshot_id


def set_location(draft: Draft, body: JsonObject) -> None:
    draft.document["location"] = without_trailing_slash(body["location"])


def set_properties(draft: Draft, body: JsonObject) -> None:
    if body["updates"]:
        draft.owned_object("properties").update(body["updates"])


def remove_properties(draft: Draft, body: JsonObject) -> None:
    """Removing what is not there is fine."""
    for name in body["removals"]:
        draft.owned_object("properties").pop(name, None)


# --- files that belong to a snapshot: at most one of each kind ---


def set_statistics(draft: Draft, body: JsonObject) -> None:
    _set_file(draft, "statistics", body["statistics"])


def remove_statistics(draft: Draft, body: JsonObject) -> None:
    remove_files(draft, "statistics", {body["snapshot-id"]})


def set_partition_statistics(draft: Draft, body: JsonObject) -> None:
    _set_file(draft, "partition-statistics", body["partition-statistics"])


def remove_partition_statistics(draft: Draft, body: JsonObject) -> None:
    remove_files(draft, "partition-statistics", {body["snapshot-id"]})


def _set_file(draft: Draft, name: str, file: JsonObject) -> None:
    files = draft.seen(name)
    place = next((n for n, old in enumerate(files) if old["snapshot-id"] == file["snapshot-id"]), len(files))
    others = [old for old in files[place:] if old["snapshot-id"] != file["snapshot-id"]]
    draft.replace(name, [*files[:place], file, *others])


def remove_files(draft: Draft, name: str, snapshot_ids: set[int]) -> None:
    files = draft.seen(name)
    kept = [file for file in files if file["snapshot-id"] not in snapshot_ids]
    if len(kept) < len(files):
        draft.replace(name, kept)


# --- encryption keys ---


def add_encryption_key(draft: Draft, body: JsonObject) -> None:
    """A key that is already there is left as it is."""
    key = body["encryption-key"]
    if all(old["key-id"] != key["key-id"] for old in draft.seen("encryption-keys")):
        draft.owned("encryption-keys").append(key)


def remove_encryption_key(draft: Draft, body: JsonObject) -> None:
    keys = draft.seen("encryption-keys")
    kept = [key for key in keys if key["key-id"] != body["key-id"]]
    if len(kept) < len(keys):
        draft.replace("encryption-keys", kept)
