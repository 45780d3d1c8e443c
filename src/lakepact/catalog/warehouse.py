"""A warehouse: the storage location of its tables, and the location policy.

`Warehouse.blob_name` reads every location and path: of tables, views, namespaces, metadata files, Delta logs, imports,
purges and credentials. It returns the name below the warehouse's root, in one spelling, or refuses the location: other
schemes and hosts, `.`, `..` and empty segments, backslashes and control characters, also if they are percent-encoded
once or several times, and Lakepact's own folders in any case or encoding.

`Warehouse.check_location` is stricter, for locations that are chosen from now on: a location that storage clients may
read in two ways is refused, because one of the two may be another table's.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import unquote

from lakepact.catalog.errors import BadRequest
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.locations import without_trailing_slash
from lakepact.iceberg.requests import Identifier

OWN_FOLDER: Final = "_catalog"
"""Lakepact's own files in a warehouse: receipts."""

_OWN_FOLDERS: Final = (OWN_FOLDER, "_mirrors", "_transactions")
"""No table may live in one of them. The others are those of mirrors: a DuckDB file, and the cuts of Delta's logs."""

LOCATION_PROPERTIES: Final = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)
RESERVED_PREFIX: Final = "lakepact."

MOST_NAME_BYTES: Final = 900
"""Object stores allow 1,024 bytes for a whole name; the rest is room for the warehouse's own prefix."""

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_TWO_READINGS: Final = re.compile(r"%(2[DEF5]|3[0-9]|4[1-9A-F]|5[0-9ACF]|6[1-9A-F]|7[0-9AE])", re.IGNORECASE)
"""Encodings of letters, digits, `-`, `.`, `_`, `~`, `/`, `\\` and `%`: none of them has to be encoded, or may be."""

_MOST_DECODINGS: Final = 5
_MOST_NAME: Final = 60
_OF_A_TABLE: Final = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", re.IGNORECASE)
"""How the name of a folder ends that was made for one table."""


class Warehouse:
    """The names and the rules. Reading and writing is for whoever holds the blob store."""

    def __init__(self, name: str, url: str, account: str = "default") -> None:
        """`account`: the tenant who owns it."""
        self.name = name
        self.account = account
        self.root = without_trailing_slash(url)
        self._inside = _canonical(self.root) + "/"

    def holds(self, location: str) -> bool:
        """Whether this lies below the root, whatever else is to be said of it."""
        return _canonical(location).startswith(self._inside)

    def contains(self, location: str) -> bool:
        """Whether the location is the root of this warehouse, or below it. What is no location is not."""
        try:
            return f"{_canonical(location).rstrip('/')}/".startswith(self._inside)
        except BadRequest:
            return False

    def blob_name(self, location: str, what: str = "location") -> str:
        """The name of the file or folder at this location, relative to the root. Outside is refused."""
        place = _canonical(location)
        if not place.startswith(self._inside):
            raise BadRequest(
                f"{what} {_short(location)} is not inside warehouse {self.name} ({self.root}). Choose a place below "
                f"it, or leave the location out"
            )
        name = place[len(self._inside) :].rstrip("/")
        if len(name.encode()) > MOST_NAME_BYTES:
            raise BadRequest(f"{what} {_short(location)} is too long: more than {MOST_NAME_BYTES} bytes; shorten it")
        decoded = _fully_decoded(name, what, location)
        if any(level in ("", ".", "..") for level in (*name.split("/"), *decoded.split("/"))) or "\\" in decoded:
            raise BadRequest(
                f"{what} {_short(location)} has an empty, '.' or '..' segment or a backslash; write the plain path"
            )
        if _CONTROL.search(decoded):
            raise BadRequest(f"{what} {_short(location)!r} holds a control character; leave it out")
        # Some file systems ignore case, the Unicode form, and dots and spaces at the end.
        first = unicodedata.normalize("NFKC", decoded.partition("/")[0]).casefold().rstrip(". ")
        if first in _OWN_FOLDERS:
            raise BadRequest(f"{what} {_short(location)} lies in {first}/, which is Lakepact's own; choose another")
        return name

    def check_location(self, location: str, what: str = "location") -> None:
        """Refuse a new location that is outside the warehouse, or that storage clients may read in two ways."""
        name = self.blob_name(location, what)
        encoded = _TWO_READINGS.search(name)
        if encoded is not None:
            raise BadRequest(
                f"{what} {_short(location)} holds {encoded[0]}, which some storage clients read as "
                f"{unquote(encoded[0])!r}; write the plain character or choose another name"
            )
        if not unicodedata.is_normalized("NFC", name):
            raise BadRequest(
                f"{what} {_short(location)} is not in Unicode normalization form NFC; some file systems take another "
                f"form for the same folder. Write it in NFC"
            )

    def places_of(self, location: str, properties: Mapping[str, str]) -> tuple[str, ...]:
        """The folders of one table, as names: its location, and where its properties have it write."""
        return tuple(
            map(self.blob_name, (location, *(properties[one] for one in LOCATION_PROPERTIES if one in properties)))
        )

    def lies_in(self, path: str, places: Iterable[str]) -> bool:
        """Whether a file is in one of these folders. What is not even in the warehouse is refused."""
        name = self.blob_name(path, "path")
        return any(f"{name}/".startswith(f"{place}/") for place in places)

    def new_location(self, identifier: Identifier, uuid: str, namespace_properties: Mapping[str, str]) -> str:
        """Return the location of a new table or view: below that of its namespace, in a folder that holds its uuid."""
        root = self.namespace_location(identifier.namespace, namespace_properties)
        self.blob_name(root, "the namespace's location")
        return f"{without_trailing_slash(root)}/{_folder(identifier.name)}-{uuid}"

    def namespace_location(self, namespace: Sequence[str], properties: Mapping[str, str]) -> str:
        """Return the effective location of a namespace: its property `location`, or one that follows from its name.

        Two namespaces never get the same location from their names: a level that is not kept as it is has a digest.
        """
        chosen = properties.get("location")
        if chosen is not None:
            return chosen
        return f"{self.root}/{'/'.join(map(_namespace_folder, namespace))}"

    def check_alone(self, location: str) -> None:
        """A folder whose name ends in a uuid belongs to one table: no other lies below it.

        So whoever may reach all of such a folder reaches one table and no other, and nobody has to look.
        """
        above = self.blob_name(location).split("/")[:-1]
        taken = next((folder for folder in above if is_of_a_table(folder)), None)
        if taken is not None:
            raise BadRequest(
                f"location {_short(location)} lies in {taken}/, by its name the folder of another table. Choose "
                f"another, or leave the location out"
            )

    def check_metadata(self, metadata: JsonObject, before: JsonObject | None = None) -> None:
        """Every location that new metadata names is inside. `before`: locations of the version that it follows."""
        old = before or {}
        old_properties, properties = old.get("properties") or {}, metadata.get("properties") or {}
        self._check_changed(metadata["location"], old.get("location"), "location")
        for name in LOCATION_PROPERTIES:
            if name in properties:
                self._check_changed(properties[name], old_properties.get(name), name)

    def _check_changed(self, location: str, before: str | None, what: str) -> None:
        if location == before:
            # An older release accepted it.
            self.blob_name(location, what)
        else:
            self.check_location(location, what)


def _folder(name: str) -> str:
    """A name as a folder, for people who look at the storage."""
    return _UNSAFE.sub("_", name)[:_MOST_NAME]


def _namespace_folder(level: str) -> str:
    folder = _folder(level)
    # A folder of a namespace must not look like that of a table, nor like one of Lakepact's own.
    if folder == level and not is_of_a_table(folder) and not folder.startswith("_"):
        return folder
    return f"{folder.strip('_')}_{hashlib.sha256(level.encode()).hexdigest()[:12]}"


def is_of_a_table(folder: str) -> bool:
    """Whether the name of this folder ends as that of one which was made for a single table."""
    return _OF_A_TABLE.search(folder) is not None


def check_properties(names: Mapping[str, object] | Sequence[str]) -> None:
    """Properties that begin with `lakepact.` are not for clients to set or remove."""
    taken = sorted(name for name in names if name.lower().startswith(RESERVED_PREFIX))
    if taken:
        raise BadRequest(
            f"properties that begin with '{RESERVED_PREFIX}' are reserved: {', '.join(map(_short, taken[:5]))}"
        )


def _canonical(location: str) -> str:
    """The location with its scheme in the one form that is compared. `file:/x`, `file:///x` and `/x` are the same."""
    scheme, colon, rest = location.partition(":")
    if location.startswith("/"):
        return "file:///" + location.lstrip("/")
    if not colon or not scheme.isalnum():
        raise BadRequest(f"location {_short(location)} is not a URL such as s3://bucket/path or file:///path")
    if scheme.lower() == "file":
        if rest.startswith("//") and not rest.startswith("///"):
            raise BadRequest(f"location {_short(location)} names a host; write file:///path")
        return "file:///" + rest.lstrip("/")
    return f"{scheme.lower()}:{rest}"


def _fully_decoded(name: str, what: str, location: str) -> str:
    """The name with percent-encodings decoded, however often they are nested."""
    for _ in range(_MOST_DECODINGS):
        decoded = unquote(name)
        if decoded == name:
            return name
        name = decoded
    raise BadRequest(f"{what} {_short(location)} is percent-encoded too many times; write the plain path")


def _short(text: str) -> str:
    return text if len(text) <= 300 else text[:297] + "..."
