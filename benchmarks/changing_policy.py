"""A policy for benchmarks/reconfigurations.py: many changes in every window, of all kinds.

Two tenants keep an instance each and get others beside it: on slices that idled, on slices that
the other one loses, in the same place as the other's or cut otherwise, and on slices that a
retraining leaves, whose end is planned as `migrator` plans it. What it decides it writes to the
file that the variable CHANGES_FILE names, so that who measures knows what was asked for when.
"""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path

from migrator.core.problem import Instance, Kind, Task
from migrator.policies.policy import (
    Decision,
    Observation,
    Routing,
    Sharing,
    Sight,
    TenantView,
    remaining_s,
)

SLOTS = 32
FILE = "CHANGES_FILE"
FIRST, SECOND = 0, 1
"""The tenants."""
OWN = ((FIRST, 0, 2), (SECOND, 2, 1))
"""What each keeps: tenant, start, GPCs."""
SHARED, SHARED_GPCS, SPARE = 4, 2, 6
"""Where retrainings run, and a slice that idles now and then."""
WITHOUT_S = 3.0
"""For a retraining that there is nothing for."""

Held = tuple[tuple[int, int, int], ...]
BOTH: Held = ((FIRST, 4, 1), (SECOND, 5, 1))
EXCHANGED: Held = ((SECOND, 4, 1), (FIRST, 5, 1))
LATER: tuple[Held, ...] = (EXCHANGED, ((SECOND, 4, 2),), BOTH, ((FIRST, 4, 2),))
"""After both retrainings: the same places exchanged, then each time cut otherwise."""
STEP_SLOTS = 2


class Changing:
    """The same changes in every window, around its retrainings."""

    name = "changing"
    summary = "many changes in every window, for a benchmark"
    sharing = Sharing.MIG
    sight = Sight.NOTHING
    routing = Routing.EARLIEST
    every_s: float | None = None
    on_completion = False
    estimates = False

    def decide(self, observation: Observation) -> Decision:
        """The rest of the window's changes."""
        slots = planned(observation)
        if FILE in os.environ:
            _written(Path(os.environ[FILE]), observation.slot, slots)
        return Decision(slots)


def planned(observation: Observation) -> tuple[tuple[Instance, ...], ...]:
    """What is held from now on to the window's end."""
    names = [tenant.name for tenant in observation.tenants]
    first = _retrained(observation, FIRST, 1)
    second = _retrained(observation, SECOND, max(9, first[1] + 2))
    later = max(18, second[1] + 2)
    slots = []
    for slot in range(observation.slot, SLOTS):
        held = [*OWN, *_shared(slot, first, second, later), *_spare(slot)]
        serving = [
            Instance(start, gpcs, Task(names[who], Kind.INFERENCE)) for who, start, gpcs in held
        ]
        training = [
            Instance(SHARED, SHARED_GPCS, Task(names[who], Kind.RETRAINING))
            for who, (begin, end) in ((FIRST, first), (SECOND, second))
            if begin <= slot < end and observation.tenants[who].retraining is not None
        ]
        slots.append((*serving, *training))
    return tuple(slots)


def _retrained(observation: Observation, tenant: int, begin: int) -> tuple[int, int]:
    """The slots of its retraining, from `begin` or, where it runs, from now on."""
    view, slot_s = observation.tenants[tenant], observation.slot_s
    if view.retraining is None:
        return begin, begin + math.ceil(WITHOUT_S / slot_s)
    if view.retraining.holding is not None:
        begin = observation.slot
    begin = max(begin, observation.slot)
    sms = observation.board.sms_of(SHARED_GPCS)
    took_s = remaining_s(view, sms) + max(map(_drain_s, observation.tenants))
    return begin, begin + math.ceil(took_s / slot_s)


def _drain_s(view: TenantView) -> float:
    """The longest that a batch keeps an instance."""
    return view.service.latency_s(view.service.batch, 14.0)


def _shared(slot: int, first: tuple[int, int], second: tuple[int, int], later: int) -> Held:
    """What serves where the retrainings run, before, between and after them."""
    if slot < first[1] or second[0] <= slot < second[1]:
        return ()
    if slot < later:
        return BOTH  # slices that a retraining left, cut otherwise
    step = (slot - later) // STEP_SLOTS
    return LATER[step] if step < len(LATER) else ()


def _spare(slot: int) -> Held:
    """The slice that idles, then is given, then changes hands."""
    if 4 <= slot < 9:
        return ((FIRST, SPARE, 1),)
    if 9 <= slot < 12:
        return ((SECOND, SPARE, 1),)
    if 22 <= slot < 26:
        return ((FIRST, SPARE, 1),)
    return ()


def _written(path: Path, slot: int, slots: tuple[tuple[Instance, ...], ...]) -> None:
    held = [
        [
            (instance.start, instance.gpcs, instance.task.tenant, instance.task.kind)
            for instance in instances
            if instance.task
        ]
        for instances in slots
    ]
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"at_s": time.time(), "slot": slot, "slots": held}) + "\n")
