"""Retrainings of the window: which ended, and how often one that failed is resumed."""

from __future__ import annotations

from collections import Counter

RESUMED = 2
"""How often a retraining that failed is begun again while the plan has it."""


class Trials:
    """What became of the retrainings that were begun for this window."""

    def __init__(self) -> None:
        self._window: int | None = None
        self._running: dict[str, int | None] = {}
        self._failures: Counter[str] = Counter()
        self.done: set[str] = set()
        """Tenants whose retraining ended or is given up: nothing is begun for them any more."""

    def begin(self, window: int | None) -> None:
        """A decision for that window; None: it knows itself what is to be retrained."""
        if window is None or window != self._window:
            self.done.clear()
            self._failures.clear()
        self._window = window

    def started(self, tenant: str) -> None:
        """It runs, for the window of the last decision."""
        self._running[tenant] = self._window

    def ended(self, tenant: str, ok: bool) -> None:
        """It does not any more; one of an earlier window says nothing of this one's."""
        if self._running.pop(tenant, self._window) != self._window:
            return
        if not ok:
            self._failures[tenant] += 1
        if ok or self._failures[tenant] > RESUMED:
            self.done.add(tenant)
