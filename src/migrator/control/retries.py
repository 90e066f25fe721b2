"""Retries: how often a failed retraining is resumed, and how long a site waits after a failure."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from enum import Enum, auto

from migrator.control.units import Site

RESUMED = 2
"""Maximum number of times a failed retraining is resumed while the plan contains it."""


class RetrainingRetries:
    """The retrainings that ended in this window, whenever they were started."""

    def __init__(self) -> None:
        self._window: int | None = None
        self._failures: Counter[str] = Counter()
        self.done: set[str] = set()
        """Tenants whose retraining ended or was given up. No retraining is started for them."""
        self._again: set[str] = set()

    def begin(self, window: int | None) -> None:
        """Begin to follow a decision for a window; None: the decision itself says what to
        retrain."""
        if window is None or window != self._window:
            self._again = {*self.done, *self._failures}
        for tenant in self._again:
            self.done.discard(tenant)
            del self._failures[tenant]
        self._window, self._again = window, set()

    def renew(self, tenant: str) -> None:
        """Allow the next decision to start another retraining of a tenant."""
        self._again.add(tenant)

    def ended(self, tenant: str, ok: bool) -> None:
        """Record that a retraining has ended. One that outlasted its window counts for this window
        too."""
        if not ok:
            self._failures[tenant] += 1
        if ok or self._failures[tenant] > RESUMED:
            self.done.add(tenant)


CREATE_WAIT_SLOTS, CREATE_WAIT_MOST_SLOTS = 2, 16
"""Slots to wait after a failed creation, doubled with every further failure, and their maximum."""
DESTROY_WAIT_SLOTS, DESTROY_TRIES = 2, 3
AVOIDED_SLOTS = 60
"""Slots before the removal of an instance is retried after repeated failures."""
LOSSES = 3
"""Workers lost on an instance before the instance is recreated."""
LOST_WAIT_SLOTS = 10
"""Slots for which a site is not used if even a new instance loses its workers."""
STEADY_SLOTS = 30
"""Slots after which a worker counts as stable: if it is lost later, the loss count restarts."""


class Remedy(Enum):
    """The reaction to a lost worker."""

    WARM = auto()
    REMAKE = auto()
    REST = auto()


@dataclass
class _Trouble:
    creates: int = 0
    destroys: int = 0
    losses: int = 0
    remade: bool = False
    until_s: float = 0.0
    stuck_s: float = 0.0
    """Until this time no removal is attempted."""


class SiteRetries:
    """Failure counts of every site."""

    def __init__(self) -> None:
        self._at: defaultdict[Site, _Trouble] = defaultdict(_Trouble)

    def any_waits(self, now_s: float) -> bool:
        """Whether any site waits after a failure."""
        return any(now_s < max(here.until_s, here.stuck_s) for here in self._at.values())

    def rests(self, site: Site, now_s: float) -> bool:
        """Whether the site must not be used yet."""
        return site in self._at and now_s < self._at[site].until_s

    def resting(self, now_s: float) -> set[Site]:
        """The sites that must not be used yet."""
        return {site for site, here in self._at.items() if now_s < here.until_s}

    def stuck(self, site: Site, now_s: float) -> bool:
        """Whether the instance cannot be removed yet. It can still be used."""
        return site in self._at and now_s < self._at[site].stuck_s

    def created(self, site: Site) -> None:
        """Reset the count of failed creations."""
        self._at[site].creates = 0

    def create_failed(self, site: Site, now_s: float, slot_s: float) -> None:
        """Wait before the next creation, longer every time."""
        here = self._at[site]
        slots = min(CREATE_WAIT_SLOTS * 2**here.creates, CREATE_WAIT_MOST_SLOTS)
        here.creates += 1
        here.until_s = now_s + slots * slot_s

    def destroyed(self, site: Site) -> None:
        """Reset the count of failed removals."""
        self._at[site].destroys, self._at[site].stuck_s = 0, 0.0

    def destroy_failed(self, site: Site, now_s: float, slot_s: float) -> bool:
        """Wait before the next removal. Returns True if it failed so often that the site is
        avoided."""
        here = self._at[site]
        here.destroys += 1
        given_up = here.destroys >= DESTROY_TRIES
        here.stuck_s = now_s + (AVOIDED_SLOTS if given_up else DESTROY_WAIT_SLOTS) * slot_s
        if given_up:
            here.destroys = 0
        return given_up

    def lost(self, site: Site, served_s: float, now_s: float, slot_s: float) -> Remedy:
        """The reaction to a worker that was lost after it served for `served_s`."""
        here = self._at[site]
        if served_s >= STEADY_SLOTS * slot_s:
            here.losses, here.remade = 0, False
        here.losses += 1
        if here.losses <= LOSSES:
            return Remedy.WARM
        here.losses, here.remade = 0, not here.remade
        if here.remade:
            return Remedy.REMAKE
        here.until_s = now_s + LOST_WAIT_SLOTS * slot_s
        return Remedy.REST
