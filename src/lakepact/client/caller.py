"""Requests that are repeated until there is an outcome: answered, refused, unavailable, or really unknown.

Every request of this client may be repeated. One that reads changes nothing; one that changes something carries an
Idempotency-Key, or is idempotent by the id of its transaction. The key is made once, before the first attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import quote, urlencode

import orjson

from lakepact.client.errors import Forbidden, Refused, Unauthorized, Unavailable, Unknown, refused
from lakepact.client.http import Answer, Lost, NotSent, Transport
from lakepact.client.machine import Machine, Retry, new_id
from lakepact.client.token import TokenSource
from lakepact.client.tracing import trace_headers

_MOST_FAILURES: Final = 3
"""Of a server that says 500: it may be a passing fault, and it may be one that only a person can mend."""


_TIMEOUT_HEADER: Final = "X-Lakepact-Timeout-Ms"
_SHORTEST_WAIT_S: Final = 0.05
"""An attempt that begins just before a deadline gets this long: a timeout of 0 would mean not to wait at all."""


@dataclass(frozen=True, slots=True)
class _Missed:
    """An attempt without an outcome."""

    reason: str
    heard: bool
    """Whether the server may have done it."""

    pause_s: float = 0.0
    """For how long the server asks to be left alone."""

    failure: bool = False

    for_good: bool = False
    """Whether the next attempt will fare no better."""

    @property
    def advice(self) -> str:
        return "" if self.for_good else "; try again later"


class Caller:
    """The requests of one client. `prefix` is the warehouse, or a transaction in it: `main`, `main@<id>`."""

    def __init__(
        self,
        transport: Transport,
        machine: Machine,
        *,
        base_path: str = "",
        headers: Mapping[str, str] | None = None,
        retry: Retry | None = None,
        prefix: str = "",
        transaction_id: str | None = None,
        tokens: TokenSource | None = None,
        deadline_s: float | None = None,
    ) -> None:
        """`deadline_s`: no request is waited for beyond this reading of the machine's monotonic clock."""
        self._tokens = tokens
        self._deadline_s = deadline_s
        self.transport = transport
        self.machine = machine
        self.retry = retry or Retry()
        self.prefix = prefix
        self._transaction_id = transaction_id
        self._base_path = base_path
        self._headers = dict(headers or {})

    def inside(self, prefix: str, transaction_id: str | None = None) -> Caller:
        """The same client under another prefix."""
        return Caller(
            self.transport,
            self.machine,
            base_path=self._base_path,
            headers=self._headers,
            retry=self.retry,
            prefix=prefix,
            transaction_id=transaction_id,
            tokens=self._tokens,
        )

    def within(self, timeout_s: float) -> Caller:
        """The same client for requests that together take at most about this long: attempts, pauses and answers."""
        return Caller(
            self.transport,
            self.machine,
            base_path=self._base_path,
            headers=self._headers,
            retry=replace(self.retry, deadline_s=min(timeout_s, self.retry.deadline_s)),
            prefix=self.prefix,
            transaction_id=self._transaction_id,
            tokens=self._tokens,
            deadline_s=self.machine.monotonic_s() + timeout_s,
        )

    def read(
        self, path: str, *, query: Mapping[str, str] | None = None, body: Any = None, method: str = "GET"
    ) -> Answer:
        """Something that changes nothing. Raises `Refused` or `Unavailable`."""
        answer, missed = self._repeat(lambda: self._once(method, path, query, body))
        if answer is None:
            raise Unavailable(f"{method} {self._place(path)}: {missed.reason}. Nothing was changed{missed.advice}")
        return answer

    def change(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """A change under a key of its own. Raises `Refused`, `Unavailable` or `Unknown`."""
        key = key or new_id(self.machine)
        keyed = {"Idempotency-Key": key, **(headers or {})}
        return self.settle(method, path, self._transaction_id or key, query=query, body=body, headers=keyed)

    def settle(
        self,
        method: str,
        path: str,
        transaction_id: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        ask: Callable[[], Answer | None] | None = None,
    ) -> Answer:
        """A change that is idempotent by the id of its transaction. `ask` finds out what became of it: an answer, a
        `Refused`, or None if it is still to be done."""

        def once() -> Answer | _Missed:
            missed = self._once(method, path, query, body, headers)
            if isinstance(missed, _Missed) and missed.heard and ask is not None:
                try:
                    return ask() or missed
                except Unavailable:
                    return missed
            return missed

        answer, missed = self._repeat(once)
        if answer is None:
            what = f"{method} {self._place(path)}"
            if missed.heard:
                raise Unknown(what, missed.reason, transaction_id)
            raise Unavailable(f"{what}: {missed.reason}. Nothing happened{missed.advice}")
        return answer

    def try_once(self, method: str, path: str, *, body: Any = None) -> Answer:
        """One attempt, for those who have their own way to go on. Raises `Refused` or `Unavailable`."""
        answer = self._once(method, path, None, body)
        if isinstance(answer, _Missed):
            raise Unavailable(f"{method} {self._place(path)}: {answer.reason}")
        return answer

    def _repeat(self, once: Callable[[], Answer | _Missed]) -> tuple[Answer | None, _Missed]:
        """Until there is an answer. Whether it may have been heard is remembered: a later attempt that was certainly
        not heard says nothing about an earlier one."""
        machine, retry = self.machine, self.retry
        deadline = machine.monotonic_s() + retry.deadline_s
        heard, failures, attempt = False, 0, 0
        while True:
            attempt += 1
            try:
                answer = once()
            except (Unauthorized, Forbidden, Unavailable) as error:
                # The request was refused before it was read, or no token could be fetched for it. Neither says anything
                # about an earlier attempt.
                if not heard:
                    raise
                # The text of the error says that nothing happened, which is true of this attempt only.
                reason = "no access token could be fetched" if isinstance(error, Unavailable) else str(error)
                return None, _Missed(reason, heard)
            if isinstance(answer, Answer):
                return answer, _Missed("", heard)
            heard, failures = heard or answer.heard, failures + answer.failure
            pause_s = max(answer.pause_s, retry.pause_s(attempt, machine.chance()))
            late = machine.monotonic_s() + pause_s > deadline
            if attempt >= retry.attempts or failures >= _MOST_FAILURES or late or answer.for_good:
                # In brackets: the reason may end with a question.
                tried = f" (after {attempt} attempts)" if attempt > 1 else ""
                return None, _Missed(f"{answer.reason}{tried}", heard, for_good=answer.for_good)
            machine.pause(pause_s)

    def _place(self, path: str) -> str:
        return f"/v1/{path.replace('{prefix}', quote(self.prefix, safe=''))}"

    def _once(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Any,
        headers: Mapping[str, str] | None = None,
    ) -> Answer | _Missed:
        target = self._base_path + self._place(path)
        if query:
            target += "?" + urlencode(query, quote_via=quote)
        content = None if body is None else orjson.dumps(body)
        about = {} if content is None else {"Content-Type": "application/json"}
        sent = {**self._headers, **trace_headers(), **about, **(headers or {})}
        try:
            answer = self._exchanged(method, target, sent, content)
        except NotSent as error:
            return _Missed(str(error), heard=False, for_good=error.for_good)
        except Lost as error:
            return _Missed(str(error), heard=True)
        return _judged(answer, method)

    def _exchanged(self, method: str, target: str, headers: Mapping[str, str], content: bytes | None) -> Answer:
        """The answer to the request with a token; to the request with a newer one, if that was refused."""
        if self._tokens is None:
            return self._exchange(method, target, headers, content)
        token = self._tokens.current()
        answer = self._exchange(method, target, {**headers, **_bearer(token)}, content)
        newer = self._tokens.newer_than(token) if answer.status in (401, 419) else None
        if newer is None:
            return answer
        return self._exchange(method, target, {**headers, **_bearer(newer)}, content)

    def _exchange(self, method: str, target: str, headers: Mapping[str, str], content: bytes | None) -> Answer:
        if self._deadline_s is None:
            return self.transport.exchange(method, target, headers, content)
        timeout_s = max(self._deadline_s - self.machine.monotonic_s(), _SHORTEST_WAIT_S)
        # The server gives up a little earlier than that. It then answers that nothing happened.
        limited = {**headers, _TIMEOUT_HEADER: str(max(1, round(timeout_s * 1000)))}
        return self.transport.exchange(method, target, limited, content, timeout_s)


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _judged(answer: Answer, method: str) -> Answer | _Missed:
    """Raises `Refused` for an answer that says no."""
    status = answer.status
    if status < 300:
        return answer if status == 204 or _is_document(answer) else _from_another(answer)
    if status < 400:
        return _from_another(answer)
    if status == 429 or status == 503:
        # A Lakepact server that applied nothing sends an error document and Retry-After. A proxy may have passed the
        # request on before it answered 503.
        after = answer.headers.get("retry-after", "")
        asked = after.isascii() and after.isdecimal()
        nothing_applied = status == 429 or (asked and bool(_error(answer)))
        return _Missed(_said(answer), heard=not nothing_applied, pause_s=float(after) if asked else 0.0)
    if status >= 500 and status != 501:
        return _Missed(_said(answer), heard=True, failure=status == 500)
    # A gateway that says who may not ask passes nothing on. And an answer to HEAD has no body to know it by.
    if not _error(answer) and status not in (401, 403) and method != "HEAD":
        return _from_another(answer)
    raise _refused(answer)


def _is_document(answer: Answer) -> bool:
    try:
        return answer.kind == "application/json" and isinstance(answer.json(), dict)
    except ValueError:
        return False


def _from_another(answer: Answer) -> _Missed:
    """Somebody in between answered, with a page for people. Whether the request was passed on, nobody knows; that the
    next one fares better is not likely."""
    where = answer.headers.get("location", "").partition("?")[0][:200]
    shown = where or " ".join(answer.body[:200].decode(errors="replace").split())
    what = " ".join(filter(None, (str(answer.status), answer.kind, shown)))
    return _Missed(
        f"something that is not a Lakepact server answered: {what}. Correct the address, or ask who runs the proxy",
        heard=True,
        failure=True,
    )


def _refused(answer: Answer) -> Refused:
    return refused(answer.status, _error(answer) or _page(answer))


def _page(answer: Answer) -> Mapping[str, Any]:
    """What is no document is shown as it is."""
    return {"message": answer.body[:500].decode(errors="replace")} if answer.body else {}


def _said(answer: Answer) -> str:
    error = _error(answer) or _page(answer)
    return f"the server answered {answer.status} {error.get('type', '')}: {error.get('message', '')}".rstrip(": ")


def _error(answer: Answer) -> Mapping[str, Any]:
    """What an error document says; nothing if there is none."""
    try:
        document = answer.json()
    except ValueError:
        return {}
    error = document.get("error") if isinstance(document, dict) else None
    return error if isinstance(error, dict) else {}
