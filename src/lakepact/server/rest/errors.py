"""Errors on the wire. Clients delete their files on a 4xx, so a 4xx is sent only if certainly nothing happened.

400 404 406 409 422   refused: nothing happened, and the same request would be refused again
403                   whoever asks may not: nothing happened, and it may be granted later
503 with Retry-After  nothing happened yet: send it again
500 504               unknown: it may have happened; the transaction's id is in the answer, to ask about it. 500 is
                      also a fault of server or storage, such as a file that is damaged or missing
"""

from __future__ import annotations

import math
from typing import Any, Final

from lakepact.catalog.errors import AnswerLost, Forbidden, MissingFile, NotFound, Refusal
from lakepact.catalog.work import as_refusal
from lakepact.errors import (
    Contended,
    Damaged,
    InvalidRequest,
    KeyReused,
    LakepactError,
    OutcomeUnknown,
    RowsGone,
    SnapshotTooOld,
    StagedMeanwhile,
    StoreUnavailable,
    TransactionNotFound,
    WrongState,
)
from lakepact.iceberg.errors import StaleUpdate
from lakepact.server.http import Response, error_response, json_response
from lakepact.server.vending.scope import ProviderFailed

TRANSACTION_HEADER: Final = b"X-Lakepact-Transaction"


class NoSuchWarehouse(Refusal):
    type = "NoSuchWarehouseException"
    code = 404


class NoSuchState(Refusal):
    type = "NoSuchStateException"
    code = 404


class NoSuchTransaction(Refusal):
    type = "NoSuchTransactionException"
    code = 404


def error_answer(error: Exception) -> Response:
    """The answer to a request that ended in this error."""
    match error:
        case Refusal():
            return _refused(error)
        case InvalidRequest() | StaleUpdate():
            return _refused(as_refusal(error))
        case MissingFile():
            return error_response(error.code, "InternalServerError", str(error))
        case NotFound():
            return error_response(error.code, error.type, str(error))
        case Forbidden():
            return error_response(403, error.type, str(error))
        case KeyReused() | WrongState() | SnapshotTooOld() | StagedMeanwhile():
            return error_response(409, _named(error), str(error))
        case TransactionNotFound():
            return error_response(404, NoSuchTransaction.type, str(error))
        case Contended():
            return error_response(503, "SlowDownException", str(error), _retry_after(error.retry_after_s))
        case RowsGone():
            return error_response(503, "SlowDownException", str(error), _retry_after(1.0))
        case ProviderFailed() if error.temporary:
            return error_response(503, "ServiceUnavailableException", str(error), _retry_after(1.0))
        case StoreUnavailable():
            return error_response(503, "ServiceUnavailableException", str(error), _retry_after(1.0))
        case OutcomeUnknown():
            # 504 and not 503: older clients take 503 for "it did not happen" and delete their files.
            headers = ((TRANSACTION_HEADER, error.transaction_id.encode()),)
            return error_response(504, "CommitStateUnknownException", str(error), headers)
        case AnswerLost():
            headers = ((TRANSACTION_HEADER, error.transaction_id.encode()),)
            return error_response(504, error.type, str(error), headers)
        case Damaged():
            return error_response(500, "InternalServerError", str(error))
        case LakepactError():
            return error_response(500, "InternalServerError", str(error))
        case _:
            return error_response(
                500,
                "InternalServerError",
                "the server failed in a way it does not know; its log has the details under this X-Request-Id",
            )


def _refused(refusal: Refusal) -> Response:
    body: dict[str, Any] = {"error": refusal.to_json()}
    return json_response(body, refusal.code)


def _named(error: LakepactError) -> str:
    return f"{type(error).__name__}Exception"


def _retry_after(seconds: float) -> tuple[tuple[bytes, bytes], ...]:
    return ((b"Retry-After", str(max(1, math.ceil(seconds))).encode()),)
