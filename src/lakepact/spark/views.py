"""Temporary views of one session in another: what came or changed since the last time is taken over, the newest wins.

Spark copies them once, when a session is cloned. A view that is made afterwards, while a transaction is open, would be
missing in it; and one that was replaced there must not come back by being copied again.
"""

from __future__ import annotations

from typing import Any, Final

_BETWEEN: Final = "\n"


class TemporaryViews:
    """Java sessions; `target` was cloned from `source` just now."""

    def __init__(self, jvm: Any, source: Any, target: Any) -> None:
        self._identity = jvm.java.lang.System.identityHashCode
        self._source = source.sessionState().catalog()
        self._target = target.sessionState().catalog()
        self._known = self._identities()

    def catch_up(self) -> None:
        now = self._identities()
        for name, identity in now.items():
            if self._known.get(name) != identity:
                view = self._source.getRawTempView(name)
                if view.isDefined():
                    self._target.createTempView(name, view.get(), True)
        for name in self._known.keys() - now.keys():
            found = self._target.getRawTempView(name)
            # Only if it is still the copy: somebody may have made another one of this name inside.
            if found.isDefined() and self._identity(found.get()) == self._known[name]:
                self._target.dropTempView(name)
        self._known = now

    def _identities(self) -> dict[str, int]:
        """Which definition each name stands for. A copy is the same object, a replacement is another one."""
        names = [name for name in str(self._source.getTempViewNames().mkString(_BETWEEN)).split(_BETWEEN) if name]
        found = {name: self._source.getRawTempView(name) for name in names}
        return {name: self._identity(view.get()) for name, view in found.items() if view.isDefined()}
