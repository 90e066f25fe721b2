"""Retrainings of the window: which ended, and how often one that failed is resumed."""

from __future__ import annotations

from collections import Counter

RESUMED = 2
"""How often a retraining that failed is begun again while the plan has it."""


class Trials:
    """What became of the retrainings that ended in this window, whenever they were begun."""

    def __init__(self) -> None:
        self._window: int | None = None
        self._failures: Counter[str] = Counter()
        self.done: set[str] = set()
        """Tenants whose retraining ended or is given up: nothing is begun for them any more."""
        self._again: set[str] = set()

    def begin(self, window: int | None) -> None:
        """A decision for that window; None: it knows itself what is to be retrained."""
        if window is None or window != self._window:
            self._again = {*self.done, *self._failures}
        for tenant in self._again:
            self.done.discard(tenant)
            del self._failures[tenant]
        self._window, self._again = window, set()

    def renew(self, tenant: str) -> None:
        """There is another one for it, which the next decision may begin."""
        self._again.add(tenant)

    def ended(self, tenant: str, ok: bool) -> None:
        """It does not run any more; one that outlasted its window was this window's too."""
        if not ok:
            self._failures[tenant] += 1
        if ok or self._failures[tenant] > RESUMED:
            self.done.add(tenant)
