"""What providers' error answers mean, one by one, in obstore's words."""

from __future__ import annotations

import pytest
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError, NotModifiedError, PreconditionError

from lakepact.kernel.ports import Refused, Unknown
from lakepact.stores.objects_answers import is_missing_object, reason_of, refusal_of


def text(status: str, code: str = "") -> str:
    body = f"<Error>\n  <Code>{code}</Code>\n</Error>" if code else ""
    return (
        f"Error performing PUT http://127.0.0.1/lake/cells/a.json in 2ms - Server returned non-2xx status code: "
        f"{status}: {body}\n\nDebug source:\nGeneric {{ status: 999 }}"
    )


@pytest.mark.parametrize(
    ("error", "creating"),
    [
        (AlreadyExistsError(text("412 Precondition Failed", "PreconditionFailed")), True),
        (PreconditionError(text("412 Precondition Failed", "PreconditionFailed")), False),
        (PreconditionError(text("412 Precondition Failed")), False),
        (PreconditionError(text("412 Precondition Failed", "ConditionNotMet")), False),
        (AlreadyExistsError(text("409 Conflict", "BlobAlreadyExists")), True),
        (PreconditionError(text("404 Not Found", "NoSuchKey")), False),
        (PreconditionError(text("404 Not Found", "BlobNotFound")), False),
        (AlreadyExistsError(text("304 Not Modified")), True),
    ],
)
def test_a_condition_that_did_not_hold_is_refused(error: BaseError, creating: bool) -> None:
    assert refusal_of(error, creating=creating) == Refused()


@pytest.mark.parametrize(
    ("error", "creating"),
    [
        (AlreadyExistsError(text("409 Conflict", "ConditionalRequestConflict")), True),
        (AlreadyExistsError(text("409 Conflict", "ConditionalRequestConflict")), False),
        (AlreadyExistsError(text("409 Conflict", "OperationAborted")), True),
        (AlreadyExistsError(text("409 Conflict", "BlobImmutableDueToPolicy")), False),
        (AlreadyExistsError(text("409 Conflict", "ContainerBeingDeleted")), True),
        (AlreadyExistsError(text("409 Conflict")), True),
        (PreconditionError(text("412 Precondition Failed", "LeaseIdMissing")), False),
        (PreconditionError(text("404 Not Found", "NoSuchBucket")), False),
        (FileNotFoundError(text("404 Not Found", "ContainerNotFound")), False),
        (FileNotFoundError(text("404 Not Found", "NoSuchKey")), True),
        (PreconditionError(text("404 Not Found")), False),
        (NotModifiedError(text("304 Not Modified")), False),
        (GenericError(text("500 Internal Server Error", "InternalError")), True),
        (GenericError("Generic S3 error: HTTP error: error sending request"), True),
        (PreconditionError("a text that a later obstore might use"), False),
        (RuntimeError("anything"), True),
    ],
)
def test_everything_else_is_unknown(error: Exception, creating: bool) -> None:
    assert isinstance(refusal_of(error, creating=creating), Unknown)


def test_only_a_missing_object_reads_as_missing() -> None:
    assert is_missing_object(FileNotFoundError(text("404 Not Found", "NoSuchKey")))
    assert is_missing_object(FileNotFoundError(text("404 Not Found", "BlobNotFound")))
    assert not is_missing_object(FileNotFoundError(text("404 Not Found", "NoSuchBucket")))
    assert not is_missing_object(FileNotFoundError(text("404 Not Found", "ContainerNotFound")))
    assert not is_missing_object(FileNotFoundError(text("404 Not Found")))
    assert not is_missing_object(GenericError(text("500 Internal Server Error", "NoSuchKey")))


def test_a_reason_is_one_short_line_without_the_debug_dump() -> None:
    reason = reason_of(GenericError(text("500 Internal Server Error", "x" * 2_000)))

    assert "\n" not in reason
    assert "999" not in reason
    assert len(reason) <= 500
