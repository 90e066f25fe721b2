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

from migrator.core.problem import Allocation, Instance, Kind, Problem, Task
from migrator.planning.arrays import Floats, Ints
from migrator.planning.exact.schedule import Schedule
from migrator.planning.exact.space import Space
from migrator.planning.kernels import compiled, compiled_inner
from migrator.planning.ranking import descending
from migrator.planning.survivors.arrivals import Arrivals, missed_by, worth_of
from migrator.planning.survivors.fixed_schedule import Around
from migrator.planning.survivors.menus import Menu, Menus

HURRIED = 4
"""States that go on once the time is up."""
STEADY = 1e-6
"""Requests per request of capability that keeping an instance is worth: breaks ties only."""
PER_ALLOCATION = 2
"""States of one allocation, differing in age only, that a slot keeps: more crowd out others."""
_ROUNDING = 1e-9
"""More than sums of the same numbers in another order differ by, relative and absolute."""


@dataclass(frozen=True, eq=False)
class Shared:
    """The best allocations found, and the goodput counted for them."""

    value: float
    owners: Ints
    """[slot, placement]: tenant that holds it for either task, -1 none"""


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
    """[placement set, n]: its placements; -1 ends"""


class _Ranked(NamedTuple):
    """Choices of a slot, and room for ranking them."""

    which: Ints
    """[n, 2]: (state, share)"""
    score: Floats
    """[2, n]: (rank, goodput so far)"""
    order: Ints
    """[2, n]: see `descending`"""
    brings: Floats
    """[tenant, placement set, 2]: (goodput of the slot, rank)"""
    most: Floats
    """[tenant, pattern]: the highest rank of its sets of placements"""
    rest: Floats
    """[tenant + 1]: the highest ranks of this tenant and those after it, for one joint pattern"""
    bounds: Floats
    """[group]: the highest rank of the shares of a joint pattern"""
    group_order: Ints
    """[2, group]: see `descending`"""
    parts: Floats
    """[placement, n]: its capability n slots from now"""


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
        over = np.array(
            [tenant.overhead_s / problem.slot_s for tenant in problem.tenants], np.float64
        )
        # what cannot get warm inside the window never does: ages need not be counted further
        over = np.minimum(over, problem.slots)
        self.costs = Costs(
            over=over,
            warm_age=np.ceil(over - 1e-9).astype(np.int64),
            capability=np.array(
                [
                    [tenant.capability.get(place.gpcs, 0.0) for place in space.geometry.places]
                    for tenant in problem.tenants
                ],
                np.float64,
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
        origins = np.zeros((slots, width, 2), np.int64)
        for slot in range(slots):
            menu = self._menus.menu(int(around.masks[slot]))
            if len(menu.shares) == 0:
                return None
            kept = HURRIED if late() else width
            running = self._running(around.schedule, slot)
            states, back = self._step(slot, kept, states, menu, running, around)
            origins[slot, : len(back)] = back
        return self._trace(around, states.value, origins)

    def _step(
        self, slot: int, width: int, states: States, menu: Menu, running: Ints, around: Around
    ) -> tuple[States, Ints]:
        """The states that go on, and for each the (state before, share) it comes from."""
        all_warm = slot == 0 and self._problem.initial is None
        rows, places = 8 * width + 1024, states.owner.shape[1]
        ranked = self._ranked(rows, len(menu.patterns))
        worth = self._arrivals, around.accuracy, around.ahead
        used = _rank_shares(slot, all_warm, states, menu, self.costs, *worth, ranked)
        # equal ranks are in the order of states and shares
        order = np.lexsort((*ranked.which[:used].T[::-1], -ranked.score[0, :used]))
        then = States(
            owner=np.empty((width, places), np.int64),
            age=np.empty((width, places), np.int64),
            value=np.empty(width),
        )
        back = np.empty((width, 2), np.int64)
        best, keys = (ranked.which[order], ranked.score[1, order]), np.empty(width, np.int64)
        kept = _keep_best(all_warm, states, menu, running, self.costs, *best, keys, then, back)
        kept_states = States(then.owner[:kept], then.age[:kept], then.value[:kept])
        return kept_states, back[:kept]

    def _ranked(self, choices: int, groups: int) -> _Ranked:
        """Room for that many choices of one slot, of that many joint patterns."""
        tenants, places = self.costs.capability.shape
        return _Ranked(
            which=np.empty((choices, 2), np.int64),
            score=np.empty((2, choices)),
            order=np.empty((2, choices), np.int64),
            brings=np.empty((tenants, len(self.costs.set_places), 2)),
            most=np.empty((tenants, max(map(len, self._space.patterns)))),
            rest=np.zeros(tenants + 1),
            bounds=np.empty(groups),
            group_order=np.empty((2, groups), np.int64),
            parts=np.empty((places, int(self.costs.warm_age.max()) + 1)),
        )

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

    def _trace(self, around: Around, value: Floats, origins: Ints) -> Shared:
        at = int(value.argmax())
        owners = np.empty((len(origins), len(self._space.geometry.places)), np.int64)
        for slot in range(len(origins) - 1, -1, -1):
            before, share = origins[slot, at]
            owners[slot] = self._running(around.schedule, slot)
            for m, placement_set in enumerate(
                self._menus.menu(int(around.masks[slot])).shares[share]
            ):
                places = self._menus.places[placement_set]
                owners[slot, places[places >= 0]] = m
            at = int(before)
        return Shared(float(value.max()), owners)


def allocations_of(
    problem: Problem, space: Space, owners: Ints, schedule: Schedule
) -> tuple[Allocation, ...]:
    """What tenants hold in every slot, from owners [slot, placement] and the schedule."""
    places, names = space.geometry.places, [tenant.name for tenant in problem.tenants]
    by_start = sorted(range(len(places)), key=lambda at: places[at].start)
    slots = []
    for slot, owner in enumerate(owners.tolist()):
        retraining = {
            start.place for start in schedule if start and start.begin <= slot < start.end
        }
        slots.append(
            Allocation(
                tuple(
                    Instance(
                        places[at].start,
                        places[at].gpcs,
                        Task(
                            names[owner[at]],
                            Kind.RETRAINING if at in retraining else Kind.INFERENCE,
                        ),
                    )
                    for at in by_start
                    if owner[at] >= 0
                )
            )
        )
    return tuple(slots)


@compiled
def _rank_shares(
    slot: int,
    all_warm: bool,
    states: States,
    menu: Menu,
    costs: Costs,
    arrivals: Arrivals,
    accuracy: Floats,
    ahead: Floats,
    ranked: _Ranked,
) -> int:
    """List the best choices: `which` and `score`; returns how many.

    Shares of one joint pattern differ in where instances lie. Joint patterns come in the order of
    the most that their shares can rank. Shares whose first tenants hold the same sets are passed
    over together if not even the best sets of the other tenants would do.
    """
    which, score, brings, most = ranked.which, ranked.score, ranked.brings, ranked.most
    shares, rest, tenants = menu.shares, ranked.rest, menu.shares.shape[1]
    used, lowest_rank = 0, -np.inf
    for state in range(states.value.shape[0]):
        _rank_sets(slot, all_warm, state, states, menu, costs, arrivals, accuracy, ranked)
        # `total` ranks: with what new instances miss later and what is to come; `gain` is earned
        value, groups = states.value[state], menu.patterns.shape[0]
        for group in range(groups):
            bound = value + ahead[slot + 1, menu.joint[menu.order[menu.begin[group]]]]
            for m in range(tenants):
                bound += most[m, menu.patterns[group, m]]
            ranked.bounds[group] = bound
        by_bound = descending(groups, ranked.bounds, ranked.group_order)
        for i in range(groups):
            group = ranked.group_order[by_bound, i]
            rounding = _ROUNDING * (1.0 + abs(ranked.bounds[group]))
            if ranked.bounds[group] + rounding <= lowest_rank:
                break
            for m in range(tenants - 1, -1, -1):
                rest[m] = rest[m + 1] + most[m, menu.patterns[group, m]]
            n, end = menu.begin[group], menu.begin[group + 1]
            while n < end:
                share, m = menu.order[n], 0
                total = value + ahead[slot + 1, menu.joint[share]]
                while m < tenants and total + rest[m] + rounding > lowest_rank:
                    total += brings[m, shares[share, m], 1]
                    m += 1
                if m < tenants or total <= lowest_rank:
                    n = menu.after[n, m - 1] if m > 0 else end
                    continue
                n += 1
                gain = value
                for m in range(tenants):
                    gain += brings[m, shares[share, m], 0]
                which[used, 0], which[used, 1] = state, share
                score[0, used], score[1, used] = total, gain
                used += 1
                if used == which.shape[0]:  # full: from now on only what beats the half that stays
                    used, lowest_rank = _halve(which, score, ranked.order)
    return used


@compiled_inner
def _rank_sets(
    slot: int,
    all_warm: bool,
    state: int,
    states: States,
    menu: Menu,
    costs: Costs,
    arrivals: Arrivals,
    accuracy: Floats,
    ranked: _Ranked,
) -> None:
    """Fill `brings` and `most`: what a set brings depends on tenant and state, not on the share."""
    brings, most, sets = ranked.brings, ranked.most, menu.sets
    for m in range(sets.shape[0]):
        _foresee(m, state, all_warm, states, costs, ranked.parts)
        most[m] = -np.inf
        for i in range(sets.shape[1]):
            placement_set = sets[m, i]
            if placement_set < 0:
                break
            gain, rank = _worth(
                slot, m, placement_set, state, states, costs, arrivals, accuracy, ranked.parts
            )
            brings[m, placement_set, 0], brings[m, placement_set, 1] = gain, rank
            pattern = menu.pattern_of[m, placement_set]
            most[m, pattern] = max(most[m, pattern], rank)


@compiled_inner
def _halve(which: Ints, score: Floats, order: Ints) -> tuple[int, float]:
    """Keep the better half of the choices, in their order; (how many, the lowest rank)."""
    rows, used = which.shape[0], 0
    by_rank = descending(rows, score[0], order)
    lowest_rank = score[0, order[by_rank, rows // 2 - 1]]
    # the other row of `order` gets the rank of every choice
    for i in range(rows):
        order[1 - by_rank, order[by_rank, i]] = i
    for i in range(rows):
        if order[1 - by_rank, i] < rows // 2:
            which[used, 0], which[used, 1] = which[i, 0], which[i, 1]
            score[0, used], score[1, used] = score[0, i], score[1, i]
            used += 1
    return used, lowest_rank


@compiled
def _keep_best(
    all_warm: bool,
    states: States,
    menu: Menu,
    running: Ints,
    costs: Costs,
    which: Ints,
    gain: Floats,
    keys: Ints,
    then: States,
    back: Ints,
) -> int:
    """Fill `then` with the first of the ranked choices that are not crowded out.

    keys [row]: room for numbers.
    """
    tenants, places, i, kept = menu.shares.shape[1], states.owner.shape[1], 0, 0
    owner, age, warm_age, set_places = then.owner, then.age, costs.warm_age, costs.set_places
    for row in range(back.shape[0]):
        # each choice is written to the first free row; the next one overwrites it if it is crowded
        while i < which.shape[0] and kept == row:
            before, share = which[i, 0], which[i, 1]
            for at in range(places):
                owner[row, at], age[row, at] = running[at], 0
            for m in range(tenants):
                placement_set = menu.shares[share, m]
                for n in range(set_places.shape[1]):
                    at = set_places[placement_set, n]
                    if at < 0:
                        break
                    owner[row, at] = m
            for at in range(places):
                m = owner[row, at]
                if m >= 0 and all_warm:
                    age[row, at] = warm_age[m]
                elif m >= 0 and states.owner[before, at] == m:
                    # ages count whole slots age_now, up to the age from which nothing changes
                    age[row, at] = min(warm_age[m], states.age[before, at] + 1)
            if not _crowded(row, owner, age, keys):
                then.value[row], back[row, 0], back[row, 1] = gain[i], before, share
                kept += 1
            i += 1
    return kept


@compiled_inner
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


@compiled_inner
def _foresee(
    m: int, state: int, all_warm: bool, states: States, costs: Costs, parts: Floats
) -> None:
    """parts[place, later]: its capability `later` slots from now, if tenant m holds it on."""
    warm_age, over = costs.warm_age[m], costs.over[m]
    for at in range(parts.shape[0]):
        age_now, capability = 0, costs.capability[m, at]
        if all_warm:
            age_now = warm_age
        elif states.owner[state, at] == m:
            age_now = states.age[state, at] + 1
        for later in range(warm_age + 1):
            parts[at, later] = capability * min(1.0, max(0.0, age_now + later + 1.0 - over))


@compiled_inner
def _worth(
    slot: int,
    m: int,
    placement_set: int,
    state: int,
    states: States,
    costs: Costs,
    arrivals: Arrivals,
    accuracy: Floats,
    parts: Floats,
) -> tuple[float, float]:
    """(goodput of the slot, the same less what will be missed while instances are cold)."""
    total, steady, capability_now, count = 0.0, 0.0, 0.0, 0
    places, capability = costs.set_places, costs.capability
    while places[placement_set, count] >= 0:
        at = places[placement_set, count]
        total += capability[m, at]
        capability_now += parts[at, 0]
        # between equals, what is stays: a reshuffle that gains nothing is only work
        if states.owner[state, at] == m:
            steady += capability[m, at]
        count += 1
    now = worth_of(arrivals, m, slot, accuracy[m, slot], capability_now)
    rank = now + STEADY * steady
    for later in range(1, min(costs.warm_age[m], accuracy.shape[1] - 1 - slot) + 1):
        warm = 0.0
        for n in range(count):
            warm += parts[places[placement_set, n], later]
        if warm >= total:
            break
        rank -= missed_by(arrivals, m, slot + later, accuracy[m, slot + later], total, warm)
    return now, rank
