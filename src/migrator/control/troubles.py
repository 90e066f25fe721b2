"""What went wrong where: how often to try again, how long to wait, when to give a site up."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import Enum, auto

from migrator.control.units import Site

CREATE_WAIT_SLOTS, CREATE_WAIT_MOST_SLOTS = 2, 16
"""After a refused creation: doubled with every further one."""
DESTROY_WAIT_SLOTS, DESTROY_TRIES = 2, 3
AVOIDED_SLOTS = 60
"""An instance that cannot be removed stays so long, then it is tried again."""
LOSSES = 3
"""Workers lost on an instance before it is made anew."""
LOST_WAIT_SLOTS = 10
"""Where even a new instance loses its workers, the place rests."""
STEADY_SLOTS = 30
"""A worker that served so long before it was lost did not fail at once: counting begins anew."""


class Cure(Enum):
    """What is to be done about a lost worker."""

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
    """Until then it is not tried to remove what is there."""


class Troubles:
    """The counts of every site."""

    def __init__(self) -> None:
        self._at: defaultdict[Site, _Trouble] = defaultdict(_Trouble)

    def rests(self, site: Site, now_s: float) -> bool:
        """Whether nothing may be tried there yet."""
        return site in self._at and now_s < self._at[site].until_s

    def resting(self, now_s: float) -> set[Site]:
        """Where nothing may be tried yet."""
        return {site for site, here in self._at.items() if now_s < here.until_s}

    def stuck(self, site: Site, now_s: float) -> bool:
        """Whether what is there cannot be removed yet; it may well be used."""
        return site in self._at and now_s < self._at[site].stuck_s

    def created(self, site: Site) -> None:
        """It worked: counting begins anew."""
        self._at[site].creates = 0

    def create_failed(self, site: Site, now_s: float, slot_s: float) -> None:
        """Wait, longer every time."""
        here = self._at[site]
        slots = min(CREATE_WAIT_SLOTS * 2**here.creates, CREATE_WAIT_MOST_SLOTS)
        here.creates += 1
        here.until_s = now_s + slots * slot_s

    def destroyed(self, site: Site) -> None:
        """It worked: counting begins anew."""
        self._at[site].destroys, self._at[site].stuck_s = 0, 0.0

    def destroy_failed(self, site: Site, now_s: float, slot_s: float) -> bool:
        """Wait, then try again; True: so often already that the place is avoided for long."""
        here = self._at[site]
        here.destroys += 1
        given_up = here.destroys >= DESTROY_TRIES
        here.stuck_s = now_s + (AVOIDED_SLOTS if given_up else DESTROY_WAIT_SLOTS) * slot_s
        if given_up:
            here.destroys = 0
        return given_up

    def lost(self, site: Site, served_s: float, now_s: float, slot_s: float) -> Cure:
        """What to do about a worker lost there after it had served so long."""
        here = self._at[site]
        if served_s >= STEADY_SLOTS * slot_s:
            here.losses, here.remade = 0, False
        here.losses += 1
        if here.losses <= LOSSES:
            return Cure.WARM
        here.losses, here.remade = 0, not here.remade
        if here.remade:
            return Cure.REMAKE
        here.until_s = now_s + LOST_WAIT_SLOTS * slot_s
        return Cure.REST
