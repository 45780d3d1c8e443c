"""What an object store's answer means. Pure: an error in, a verdict out.

obstore raises the same class for answers that mean different things: a 409 is "already exists" even when S3 only says
that two requests collided, and a missing bucket looks like a missing object. So the verdict is taken from the HTTP
status and the provider's error code, and only from combinations we know. Everything else is unknown.
"""

from __future__ import annotations

import re
from typing import Final

from lakepact.errors import StoreUnavailable
from lakepact.kernel.ports import Refused, Unknown

_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>\s*(\w+)\s*</Code>")

_MISSING_OBJECT: Final = frozenset({"NoSuchKey", "BlobNotFound"})
_ALREADY_EXISTS: Final = frozenset({"BlobAlreadyExists"})
_MAX_REASON: Final = 500


def refusal_of(error: Exception, *, creating: bool) -> Refused | Unknown:
    """Whether a failed conditional put was certainly refused because its condition did not hold."""
    status, code = _status_and_code(error)
    match status:
        # Azure says 412 for lease trouble too, where the condition may well hold.
        case 412 if not code.startswith("Lease"):
            return Refused()
        # Azure's answer to a second create. S3's 409 (ConditionalRequestConflict) is a collision, not a refusal.
        case 409 if creating and code in _ALREADY_EXISTS:
            return Refused()
        # S3's answer to a swap of nothing. A missing bucket is a 404 as well, and says nothing about the document.
        case 404 if not creating and code in _MISSING_OBJECT:
            return Refused()
        # What RFC 9110 would have for a GET, and some S3-compatible stores send for a create.
        case 304 if creating:
            return Refused()
        case _:
            return Unknown(reason_of(error))


def is_missing_object(error: Exception) -> bool:
    """Whether a read certainly found that there is no such object (rather than no such bucket, or no such server)."""
    if not isinstance(error, FileNotFoundError):
        return False
    status, code = _status_and_code(error)
    # Azure deletes through a batch request, whose parts have no error code in obstore's text.
    return (status == 404 and code in _MISSING_OBJECT) or "The specified blob does not exist" in str(error)


def reason_of(error: Exception) -> str:
    """One line for people: obstore's text without its debug dump."""
    text = " ".join(str(error).partition("\n\nDebug source")[0].split())
    return text if len(text) <= _MAX_REASON else text[: _MAX_REASON - 3] + "..."


def unavailable(action: str, error: Exception) -> StoreUnavailable:
    """The error of a read that could not be answered, with what to do about it where that is known."""
    status, code = _status_and_code(error)
    hint = "Try again; if it stays, check the endpoint, the network and the credentials."
    if status in (401, 403):
        hint = (
            "Check the credentials and their permissions to read, write, delete and list. "
            "On S3 an object that does not exist also reads as 403 without s3:ListBucket."
        )
    elif code in ("NoSuchBucket", "ContainerNotFound"):
        hint = "Create the bucket, or correct its name in the URL."
    return StoreUnavailable(f"could not {action}: {reason_of(error)} {hint}")


def _status_and_code(error: Exception) -> tuple[int | None, str]:
    text = str(error)
    status = _STATUS.search(text)
    code = _CODE.search(text)
    return (int(status.group(1)) if status else None, code.group(1) if code else "")
