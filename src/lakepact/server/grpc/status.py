"""Errors as statuses. What a client may do with its files hangs on them, as it does over REST.

INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, FAILED_PRECONDITION, ABORTED, UNIMPLEMENTED
                      refused: nothing happened
UNAUTHENTICATED, PERMISSION_DENIED
                      refused for who asked: nothing happened
RESOURCE_EXHAUSTED    asked too often: nothing happened, come back after the time that the details say
UNAVAILABLE           nothing happened yet: send it again after the time that the details say. (Without an ErrorInfo it
                      comes from gRPC itself, for a broken connection, and then it may have happened)
UNKNOWN               it may have happened: ask with GetTransaction, or send the same again
INTERNAL              stored state contradicts itself: a person must look

Every status carries an ErrorInfo whose reason is the `type` of the error; more details where there is more to say.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from lakepact.catalog.errors import AnswerLost, Forbidden, MissingFile, NotFound, Refusal
from lakepact.catalog.overlay import ClosedTransaction
from lakepact.errors import (
    Contended,
    Damaged,
    InvalidRequest,
    KeyReused,
    LakepactError,
    OutcomeUnknown,
    SnapshotTooOld,
    StoreUnavailable,
    TransactionNotFound,
    WrongState,
)
from lakepact.server.auth.errors import TooManyRequests
from lakepact.server.grpc.requests import BadField

DOMAIN: Final = "lakepact"
DETAILS_KEY: Final = "grpc-status-details-bin"

_BY_HTTP: Final = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    406: grpc.StatusCode.UNIMPLEMENTED,
    409: grpc.StatusCode.ABORTED,
    419: grpc.StatusCode.UNAUTHENTICATED,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
_TO_HTTP: Final = {
    grpc.StatusCode.OK: 200,
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.UNIMPLEMENTED: 406,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.UNKNOWN: 504,
    grpc.StatusCode.INTERNAL: 500,
}


class ServerStopping(StoreUnavailable):
    """The server is shutting down and has not looked at the call."""

    type: ClassVar[str] = "server-stopping"

    def __init__(self) -> None:
        super().__init__("this server is shutting down, and nothing was done; send the call again to another server")


def status_of(error: Exception) -> tuple[grpc.StatusCode, status_pb2.Status]:
    """The code, and the whole status with its details."""
    code, message = _code(error), _message(error)
    details = [_info(error), *_details(error, message)]
    status = status_pb2.Status(code=code.value[0], message=message, details=[_packed(one) for one in details])
    return code, status


def http_status(code: grpc.StatusCode) -> int:
    """The status that REST gives for the same: metrics and logs know only those."""
    return _TO_HTTP[code]


def _code(error: Exception) -> grpc.StatusCode:
    match error:
        case ClosedTransaction() | WrongState():
            return grpc.StatusCode.FAILED_PRECONDITION
        case Refusal() if error.type == "AlreadyExistsException":
            return grpc.StatusCode.ALREADY_EXISTS
        case Refusal():
            return _BY_HTTP.get(error.code, grpc.StatusCode.INVALID_ARGUMENT)
        case InvalidRequest():
            return grpc.StatusCode.INVALID_ARGUMENT
        case MissingFile():
            return grpc.StatusCode.INTERNAL
        case NotFound():
            return grpc.StatusCode.NOT_FOUND
        case Forbidden():
            return grpc.StatusCode.PERMISSION_DENIED
        case TransactionNotFound():
            return grpc.StatusCode.NOT_FOUND
        case KeyReused():
            return grpc.StatusCode.ALREADY_EXISTS
        case SnapshotTooOld():
            return grpc.StatusCode.ABORTED
        case Contended() | StoreUnavailable():
            return grpc.StatusCode.UNAVAILABLE
        case Damaged():
            return grpc.StatusCode.INTERNAL
        case _:
            # Whatever it was, it may have come after the commit.
            return grpc.StatusCode.UNKNOWN


def _message(error: Exception) -> str:
    if isinstance(error, LakepactError):
        return str(error)
    return "the server failed in a way it does not know; its log has the details"


def _info(error: Exception) -> Message:
    metadata = {}
    if isinstance(error, OutcomeUnknown | AnswerLost):
        metadata["transaction_id"] = error.transaction_id
    if isinstance(error, Contended) and error.owner:
        metadata["owner"] = error.owner
    reason = error.type if isinstance(error, LakepactError) else "InternalServerError"
    info: Message = error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=metadata)
    return info


def _details(error: Exception, message: str) -> list[Message]:
    match error:
        case Contended():
            return [_retry_info(error.retry_after_s)]
        case StoreUnavailable():
            return [_retry_info(1.0)]
        case TooManyRequests():
            return [_retry_info(error.retry_after_s)]
        case ClosedTransaction() | WrongState():
            violation: Any = error_details_pb2.PreconditionFailure.Violation(type="STATE", description=message)
            return [error_details_pb2.PreconditionFailure(violations=[violation])]
        case BadField():
            return [_bad_request(error.field, error.problem)]
        case Refusal() | InvalidRequest() if _code(error) is grpc.StatusCode.INVALID_ARGUMENT:
            return [_bad_request("changes", message)]
        case _:
            return []


def _retry_info(seconds: float) -> Message:
    delay = duration_pb2.Duration(seconds=int(seconds), nanos=int(seconds % 1 * 1e9))
    info: Message = error_details_pb2.RetryInfo(retry_delay=delay)
    return info


def _bad_request(field: str, problem: str) -> Message:
    violation = error_details_pb2.BadRequest.FieldViolation(field=field, description=problem)
    bad: Message = error_details_pb2.BadRequest(field_violations=[violation])
    return bad


def _packed(message: Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed
