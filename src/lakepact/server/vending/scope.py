"""What a credential is for: the files of one table, to read or to write.

A credential for a table must reach nothing else. So a location becomes a scope only if it can be said to a cloud
without a second reading (`scope_of` refuses wildcards and quotes), and only if the table keeps its files there alone.

Where a table lies and which one it is, its pointer says. Its metadata file lies among the files that its writers reach:
it may say where the table writes, which can only be a reason to give nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any, ClassVar, Final, Protocol, Self

from lakepact.catalog.errors import Refusal
from lakepact.catalog.pointers import Pointer
from lakepact.catalog.warehouse import LOCATION_PROPERTIES
from lakepact.errors import LakepactError
from lakepact.iceberg.locations import without_trailing_slash

_TWO_READINGS: Final = re.compile(r"""[*?$"'\\\x00-\x1f\x7f]""")
"""Wildcards and variables of IAM, quotes of Google's expressions."""


class Right(StrEnum):
    READ = "read"
    ADD = "add"
    """Read files and write new ones, but delete none. A writer gets this inside an open transaction, where a file that
    is deleted may be one that the committed table refers to."""

    WRITE = "write"

    @property
    def writes(self) -> bool:
        return self is not Right.READ

    @property
    def deletes(self) -> bool:
        return self is Right.WRITE


class NotScopable(Refusal):
    """No credential can be made that reaches this table and nothing else."""

    type: ClassVar[str] = "ForbiddenException"
    code: ClassVar[int] = 403


class ProviderFailed(LakepactError):
    """The cloud gave no credentials. Nothing else is given in their place."""

    type: ClassVar[str] = "credentials-unavailable"

    def __init__(self, message: str, *, temporary: bool) -> None:
        super().__init__(message)
        self.temporary = temporary
        """Whether the same request may do better in a while."""


@dataclass(frozen=True, slots=True)
class Home:
    """What credentials for a table go by."""

    id: str
    location: str
    paths: tuple[str | None, ...]
    """Where it writes, in the order of `LOCATION_PROPERTIES`; None: inside of its location."""

    staged: bool = False
    """It is not there yet, and its folder is nobody's: others may still come to lie in it."""

    @classmethod
    def of(cls, pointer: Pointer, metadata: Mapping[str, Any]) -> Self:
        """Of a table that is there."""
        return cls(pointer.id, pointer.location, _paths(metadata))

    @classmethod
    def of_new(cls, metadata: Mapping[str, Any], *, staged: bool = False) -> Self:
        """Of a table that the catalog has made this moment, or is about to: nobody else has had its metadata yet."""
        return cls(metadata["table-uuid"], metadata["location"], _paths(metadata), staged)


def _paths(metadata: Mapping[str, Any]) -> tuple[str | None, ...]:
    return tuple(map((metadata.get("properties") or {}).get, LOCATION_PROPERTIES))


@dataclass(frozen=True, slots=True)
class Scope:
    location: str
    """The table's folder, as the catalog names it, without a slash at the end."""

    bucket: str
    """Or container."""

    folder: str
    """The table's folder inside the bucket, without slashes around it."""

    right: Right

    @property
    def prefix(self) -> str:
        """What the locations of all its files begin with. With the slash: `t` is not a part of `t2`."""
        return f"{self.location}/"


@dataclass(frozen=True, slots=True)
class Credential:
    """Short-lived, and for one scope."""

    prefix: str
    config: Mapping[str, str] = field(repr=False)
    """In the words that clients of Iceberg know."""

    expires_ms: int
    tag: str
    """Another one for every credential; says nothing about it."""

    shown: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Answers that were made of it before, by path: making one costs as much as the rest of a load."""


class Provider(Protocol):
    """A cloud that makes short-lived credentials."""

    async def mint(self, scope: Scope) -> Credential:
        """A fresh credential. Raises `ProviderFailed`, or `NotScopable` if the cloud cannot draw this border."""
        ...

    def refresh(self, path: str) -> Mapping[str, str]:
        """How to tell clients where the next credential is to be had."""
        ...


# Every load asks, and the answer is the same for as long as the table stays where it is.
@lru_cache(maxsize=16_384)
def scope_of(root: str, bucket: str, prefix: str, home: Home, right: Right) -> Scope:
    """The scope of this table, in a warehouse whose root is `prefix` in `bucket`."""
    # A table that was registered may have a location with a slash at its end.
    location = without_trailing_slash(home.location)
    inside = location[len(root) :].strip("/")
    if not location.startswith(f"{root}/") or not inside or any(part in ("", ".", "..") for part in inside.split("/")):
        raise NotScopable(f"{location} is not a folder inside of the warehouse {root}: no credentials are given for it")
    if _TWO_READINGS.search(location):
        raise NotScopable(
            f"{location} holds a character that a cloud's policies read in another way (one of * ? $ \" ' \\): no "
            f"credentials are given for it. Use credentials of your own, or move the table"
        )
    for name, path in zip(LOCATION_PROPERTIES, home.paths, strict=True):
        if path and not f"{path.rstrip('/')}/".startswith(f"{location}/"):
            raise NotScopable(
                f"the table's {name} is {path}, outside of its location {location}, where other tables may write too: "
                f"no credentials are given for it. Remove the property, or use credentials of your own"
            )
    return Scope(location, bucket, "/".join(part for part in (prefix, inside) if part), right)
