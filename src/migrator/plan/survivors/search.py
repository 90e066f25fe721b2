"""Beam search over real allocations around a fixed retraining schedule.

A state says which tenant holds which placement and since when. Every slot, each state tries every
share of the free slices; the best states go on, ranked by goodput so far, less what will be
missed while new instances are cold, plus what is to come from the patterns then held.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from migrator.core.instance import Instance
from migrator.core.problem import Problem
from migrator.plan.exact.space import Floats, Ints, Schedule, Space
from migrator.plan.kernels import compiled
from migrator.plan.survivors.options import Arrivals, Menu, Menus, expected

HURRIED = 4
"""States that go on once the time is up."""
STEADY = 1e-6
"""Requests per request of capability that keeping an instance is worth: breaks ties only."""
PER_ALLOCATION = 2
"""States of one allocation, differing in age only, that a slot keeps: more crowd out others."""


@dataclass(frozen=True, eq=False)
class Around:
    """A fixed schedule and all that ranks the inference around it."""

    schedule: Schedule
    masks: Ints
    """[slot]: slices that retrainings occupy"""
    accuracy: Floats
    """[tenant, slot]"""
    ahead: Floats
    """[slot, joint pattern]: what is still to come, positions left aside"""
    later: float
    """goodput after the window that the schedule's retrainings add"""


@dataclass(frozen=True, eq=False)
class Shared:
    """The best shares found: own set per slot and tenant, and the goodput counted for them."""

    value: float
    sets: Ints


class States(NamedTuple):
    """Allocations with their history, one row each."""

    owner: Ints
    """[state, placement]: tenant that holds it, -1 none"""
    age: Ints
    """[state, placement]: whole slots its holder has had it, up to the warm age"""
    value: Floats
    """[state]: goodput so far"""


class Costs(NamedTuple):
    """What does not change with the slot."""

    over: Floats
    """[tenant]: overhead in slots"""
    warm_age: Ints
    """[tenant]: age from which an instance serves in full"""
    capability: Floats
    """[tenant, placement]"""
    set_places: Ints
    """[own set, n]: its placements; -1 ends"""


class ShareSearch:
    """Searches the inference part of one problem for given schedules."""

    def __init__(
        self,
        problem: Problem,
        space: Space,
        menus: Menus,
        arrivals: Arrivals,
        cold_slots: Mapping[Instance, float] | None = None,
    ) -> None:
        """Tabulate what does not depend on the schedule.

        `cold_slots`: for how long what is held initially does not serve yet; else all of it does.
        """
        self._problem, self._space, self._menus = problem, space, menus
        self._cold_slots = cold_slots or {}
        self._arrivals = arrivals
        over = np.array([tenant.overhead_s / problem.slot_s for tenant in problem.tenants])
        # what cannot get warm inside the window never does: ages need not be counted further
        over = np.minimum(over, problem.slots)
        self.costs = Costs(
            over=over,
            warm_age=np.ceil(over - 1e-9).astype(np.int64),
            capability=np.array(
                [
                    [tenant.capability.get(place.gpcs, 0.0) for place in space.geometry.places]
                    for tenant in problem.tenants
                ]
            ),
            set_places=menus.places,
        )

    def work(self, around: Around) -> float:
        """About how much one state costs over the whole window, for choosing a width."""
        total = 0.0
        for mask, slots in zip(*np.unique(around.masks, return_counts=True), strict=True):
            menu = self._menus.menu(int(mask))
            looks = (menu.sets >= 0).sum() * (2.0 + float(self.costs.warm_age.mean()))
            total += float(slots) * (menu.shares.size + 20.0 * looks)
        return total

    def run(self, around: Around, width: int, late: Callable[[], bool]) -> Shared | None:
        """The best of a beam of `width` states; None where some slot cannot be shared out."""
        slots = self._problem.slots
        states = self.before()
        came = np.zeros((slots, width, 2), np.int64)
        for slot in range(slots):
            menu = self._menus.menu(int(around.masks[slot]))
            if len(menu.shares) == 0:
                return None
            owner, age, value, back = _step(
                slot,
                HURRIED if late() else width,
                slot == 0 and self._problem.initial is None,
                states,
                menu,
                self._running(around.schedule, slot),
                self.costs,
                self._arrivals,
                around.accuracy,
                around.ahead[slot + 1],
            )
            states = States(owner, age, value)
            came[slot, : len(back)] = back
        return self._trace(around, states.value, came)

    def _running(self, schedule: Schedule, slot: int) -> Ints:
        """[placement]: the tenant that retrains there in the slot, -1 none."""
        running = np.full(len(self._space.geometry.places), -1, np.int64)
        for m, start in enumerate(schedule):
            if start is not None and start.begin <= slot < start.end:
                running[start.place] = m
        return running

    def before(self) -> States:
        """What is held before slot 0."""
        places = self._space.geometry.places
        states = States(
            owner=np.full((1, len(places)), -1, np.int64),
            age=np.zeros((1, len(places)), np.int64),
            value=np.zeros(1),
        )
        spots = [(place.start, place.gpcs) for place in places]
        names = [tenant.name for tenant in self._problem.tenants]
        for held in self._problem.initial.instances if self._problem.initial else ():
            if held.task is not None:
                at, m = spots.index((held.start, held.gpcs)), names.index(held.task.tenant)
                states.owner[0, at], states.age[0, at] = m, self._age(held, m)
        return states

    def _age(self, held: Instance, m: int) -> int:
        """Whole slots before the last that the tenant has had it."""
        cold = self._cold_slots.get(held, 0.0)
        warm_age = int(self.costs.warm_age[m])
        return warm_age if cold <= 0 else min(warm_age, round(self.costs.over[m] - cold) - 1)

    def _trace(self, around: Around, value: Floats, came: Ints) -> Shared:
        at = int(value.argmax())
        sets = np.empty((len(came), len(self._problem.tenants)), np.int64)
        for slot in range(len(came) - 1, -1, -1):
            before, share = came[slot, at]
            sets[slot] = self._menus.menu(int(around.masks[slot])).shares[share]
            at = int(before)
        return Shared(float(value.max()), sets)


@compiled
def _step(
    slot: int,
    width: int,
    all_warm: bool,
    states: States,
    menu: Menu,
    running: Ints,
    costs: Costs,
    arrivals: Arrivals,
    accuracy: Floats,
    ahead: Floats,
) -> tuple[Ints, Ints, Floats, Ints]:
    """One slot: the states that go on, and for each the (state before, share) it comes from.

    Their arrays, not `States`: to make one, numba would call into Python and crash on Ctrl-C.
    """
    tenants, places = menu.shares.shape[1], states.owner.shape[1]
    now = np.empty((tenants, costs.set_places.shape[0]))
    rank = np.empty((tenants, costs.set_places.shape[0]))
    parts = np.empty((places, costs.warm_age.max() + 1))
    room = 8 * width + 1024
    which, what = np.empty(room, np.int64), np.empty(room, np.int64)
    score, gain = np.empty(room), np.empty(room)
    used, least = 0, -np.inf
    for state in range(states.value.shape[0]):
        owner, age, value = states.owner[state], states.age[state], states.value[state]
        for m in range(tenants):
            _foresee(m, all_warm, owner, age, costs, parts)
            for own in menu.sets[m]:
                if own < 0:
                    break
                now[m, own], rank[m, own] = _worth(
                    slot, m, costs.set_places[own], owner, costs, arrivals, accuracy[m], parts
                )
        for share in range(menu.shares.shape[0]):
            total = value + ahead[menu.joint[share]]
            for m in range(tenants):
                total += rank[m, menu.shares[share, m]]
            if total <= least:
                continue
            which[used], what[used], score[used], gain[used] = state, share, total, value
            for m in range(tenants):
                gain[used] += now[m, menu.shares[share, m]]
            used += 1
            if used == room:
                used = room // 2
                order = np.argsort(-score, kind="mergesort")[:used]
                which[:used], what[:used] = which[order], what[order]
                score[:used], gain[:used] = score[order], gain[order]
                least = score[used - 1]
    order = np.argsort(-score[:used], kind="mergesort")
    return _best_states(
        width, all_warm, states, menu, running, costs, which[order], what[order], gain[order]
    )


@compiled
def _best_states(
    width: int,
    all_warm: bool,
    states: States,
    menu: Menu,
    running: Ints,
    costs: Costs,
    which: Ints,
    what: Ints,
    gain: Floats,
) -> tuple[Ints, Ints, Floats, Ints]:
    """The first `width` of the ranked choices that are not crowded out, as states."""
    tenants, places = menu.shares.shape[1], states.owner.shape[1]
    owner, age = np.full((width, places), -1, np.int64), np.zeros((width, places), np.int64)
    value, back, keys = np.empty(width), np.empty((width, 2), np.int64), np.empty(width, np.int64)
    kept = 0
    for i in range(which.shape[0]):
        if kept == width:
            break
        before, share = which[i], what[i]
        owner[kept], age[kept] = -1, 0
        for m in range(tenants):
            for at in costs.set_places[menu.shares[share, m]]:
                if at < 0:
                    break
                owner[kept, at] = m
        for at in range(places):
            if running[at] >= 0:
                owner[kept, at] = running[at]
            m = owner[kept, at]
            if m >= 0 and all_warm:
                age[kept, at] = costs.warm_age[m]
            elif m >= 0 and states.owner[before, at] == m:
                # ages count whole slots lived, up to the age from which nothing changes
                age[kept, at] = min(costs.warm_age[m], states.age[before, at] + 1)
        if not _crowded(kept, owner, age, keys):
            value[kept], back[kept, 0], back[kept, 1] = gain[i], before, share
            kept += 1
    return owner[:kept].copy(), age[:kept].copy(), value[:kept].copy(), back[:kept].copy()


@compiled
def _crowded(kept: int, owner: Ints, age: Ints, keys: Ints) -> bool:
    """Whether the state at `kept` is known already or its allocation has had its share."""
    key = 0
    for at in range(owner.shape[1]):
        key = key * 31 + owner[kept, at] + 1
    keys[kept] = key
    alike = 0
    for other in range(kept):
        if keys[other] != key:
            continue
        alike += 1
        same = True
        for at in range(age.shape[1]):
            same = same and age[other, at] == age[kept, at]
        if same or alike == PER_ALLOCATION:
            return True
    return False


@compiled
def _foresee(m: int, all_warm: bool, owner: Ints, age: Ints, costs: Costs, parts: Floats) -> None:
    """parts[place, l]: capability of the place `l` slots from now, if tenant m holds it on."""
    for at in range(owner.shape[0]):
        lived = age[at] + 1 if owner[at] == m else 0
        if all_warm:
            lived = costs.warm_age[m]
        for later in range(costs.warm_age[m] + 1):
            share = min(1.0, max(0.0, lived + later + 1.0 - costs.over[m]))
            parts[at, later] = costs.capability[m, at] * share


@compiled
def _worth(
    slot: int,
    m: int,
    places: Ints,
    owner: Ints,
    costs: Costs,
    arrivals: Arrivals,
    accuracy: Floats,
    parts: Floats,
) -> tuple[float, float]:
    """What an own set brings the tenant in this slot; and less what it will miss while cold."""
    total, steady, first = 0.0, 0.0, 0.0
    for at in places:
        if at < 0:
            break
        total += costs.capability[m, at]
        first += parts[at, 0]
        # between equals, what is stays: a reshuffle that gains nothing is only work
        steady += costs.capability[m, at] if owner[at] == m else 0.0
    now = accuracy[slot] * expected(arrivals, m, slot, first)
    rank = now + STEADY * steady
    for later in range(1, min(costs.warm_age[m], accuracy.shape[0] - 1 - slot) + 1):
        warm = 0.0
        for at in places:
            if at < 0:
                break
            warm += parts[at, later]
        if warm >= total:
            break
        missed = expected(arrivals, m, slot + later, total)
        missed -= expected(arrivals, m, slot + later, warm)
        rank -= accuracy[slot + later] * missed
    return now, rank
