"""Search over real allocations and retrainings together, slot by slot, pruned by the prices.

A state is the retraining status of every tenant, the tenant that holds each placement, and since
when. Every slot, each state tries every retraining that may start and every share of the slices
left; its goodput so far plus what prices say can still come is a bound on all plans through it.
Drop a state if its upper bound is not above the best plan found. Drop it also if another state with
the same retraining status, after paying to switch to this state's allocation, would still have as
much goodput. Where a slot has more states than allowed, the largest bound that was dropped is kept:
it certifies what the pass may have missed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from migrator.core.problem import Problem
from migrator.io.strict import MAX_COUNT
from migrator.planning.arrays import Floats, Ints
from migrator.planning.exact.geometry import symmetries
from migrator.planning.exact.label_search import width_within
from migrator.planning.exact.schedule import Schedule, Start
from migrator.planning.exact.space import Space
from migrator.planning.exact.tables import NEVER
from migrator.planning.survivors.arrivals import Arrivals
from migrator.planning.survivors.beam_search import Costs, States
from migrator.planning.survivors.board import Shares
from migrator.planning.survivors.expansion import empty_scratch, expand_states
from migrator.planning.survivors.menus import Menus
from migrator.planning.survivors.prices import ServingPrices
from migrator.planning.survivors.selection import next_layer
from migrator.planning.survivors.serving import ServingTables
from migrator.planning.survivors.states import DONE, STILL, Choices, Layer, empty_candidates
from migrator.planning.survivors.values_to_go import tabulate

NARROW = 12
"""States a slot that even a pass without budget keeps: it must arrive with some plan."""


@dataclass(frozen=True, eq=False)
class SearchPass:
    """What a pass brought: its best plan, if any, and what it may have missed."""

    value: float
    schedule: Schedule
    owners: Ints
    """[slot, placement]: tenant that holds it for either task, -1 none"""
    missed: float
    work: int


class StateSearch:
    """Searches plans of one problem; passes of growing width share the bounds."""

    def __init__(
        self,
        problem: Problem,
        space: Space,
        serving: ServingTables,
        shares: Shares,
        prices: ServingPrices,
        menus: Menus,
        arrivals: Arrivals,
        costs: Costs,
        running: Schedule,
    ) -> None:
        self._problem, self._space, self._running = problem, space, running
        self._serving, self._arrivals, self._costs = serving, arrivals, costs
        self._choices = _choices_of(problem, space, serving, menus)
        self._scratch = empty_scratch(self._choices, costs)
        self._most_shares = int(np.diff(self._choices.share_begin).max())
        masks = {
            int(mask) for mask in space.reachable if _has_shares(self._choices.share_begin, mask)
        }
        self._ahead = tabulate(serving, shares, prices, space, masks)

    def run(
        self,
        held: States,
        incumbent: float,
        width: int,
        budget: float,
        late: Callable[[], bool],
    ) -> SearchPass:
        """One pass that keeps at most `width` states a slot and spends about `budget` work.

        `held`: what is held before slot 0.
        """
        slots = self._problem.slots
        now, missed, work, states_so_far = self._layer_before(held), NEVER, 0, 0
        layers: list[tuple[Layer, Ints]] = []
        for slot in range(slots):
            allowed = width_within(budget, work, states_so_far, slots - slot, width, NARROW)
            states_so_far += len(now.value)
            allowed = NARROW if late() else allowed
            all_warm = slot == 0 and self._problem.initial is None
            candidates = empty_candidates(
                max(64 * allowed, 4096) + 2 * self._most_shares, incumbent
            )
            rest = self._choices, self._costs, self._arrivals
            work += expand_states(
                slot, all_warm, now, *rest, self._ahead, self._scratch, candidates
            )
            now, back, lost, spent = next_layer(slot, allowed, all_warm, now, candidates, *rest)
            missed, work = max(missed, lost), work + spent
            if len(now.value) == 0:
                return SearchPass(NEVER, self._running, np.empty((0, 0), np.int64), missed, work)
            layers.append((now, back))
        worth = now.value + self._later_goodput(now.way)
        at = int(worth.argmax())
        owners, schedule = self._trace(layers, at)
        return SearchPass(float(worth[at]), schedule, owners, missed, work)

    def _trace(self, layers: list[tuple[Layer, Ints]], at: int) -> tuple[Ints, Schedule]:
        """What is held in every slot, and the retrainings, on the way to the last state `at`."""
        rows = [at]
        for _, back in reversed(layers):
            rows.append(int(back[rows[-1], 0]))
        rearrangements = self._choices.rearrangements
        owners = np.empty((len(layers), rearrangements.shape[1]), np.int64)
        schedule, real_places = list(self._running), rearrangements[0]
        for slot, ((states, back), row) in enumerate(zip(layers, rows[-2::-1], strict=True)):
            # where the placements of the rearranged state really lie
            real_places = real_places[rearrangements[back[row, 1]]]
            owners[slot, real_places] = states.owner[row]
            for m, way in enumerate(states.way[row].tolist()):
                if way >= 0 and self._running[m] is None:
                    ends = int(states.end[row, m])
                    begin = ends - int(self._serving.durations[m, self._choices.way_option[way]])
                    configuration, where = divmod(way, len(real_places))
                    place = int(real_places[where])
                    schedule[m] = Start(place, begin, ends, configuration)
        return owners, tuple(schedule)

    def _later_goodput(self, ways: Ints) -> Floats:
        """[state]: goodput after the window of the retrainings completed at its end."""
        # a retraining that runs until the window's end is completed
        configuration = self._space.arrays.way_configuration[ways]
        stages = np.where(ways >= 0, 1 + configuration, np.maximum(0, DONE + 1 - ways))
        later: Floats = np.take_along_axis(self._serving.later, stages.T, axis=1).sum(axis=0)
        return later

    def _layer_before(self, held: States) -> Layer:
        """The state before slot 0."""
        way = np.full((1, len(self._running)), STILL, np.int64)
        end = np.zeros((1, len(self._running)), np.int64)
        for m, start in enumerate(self._running):
            if start is not None:
                way[0, m], end[0, m] = start.place, start.end
            elif not self._serving.durations[m].any():
                way[0, m] = DONE
        return Layer(way, end, held.owner.astype(np.int8), held.age.astype(np.int32), np.zeros(1))


def _choices_of(problem: Problem, space: Space, serving: ServingTables, menus: Menus) -> Choices:
    masks = 1 << problem.board.memory_slices
    reachable = {int(mask) for mask in space.reachable}
    shares_of_mask = [
        menus.menu(mask).shares if mask in reachable else None for mask in range(masks)
    ]
    counts = [0 if menu_shares is None else len(menu_shares) for menu_shares in shares_of_mask]
    tenants = len(problem.tenants)
    shares = np.concatenate(
        [np.empty((0, tenants), np.int64)]
        + [shares for shares in shares_of_mask if shares is not None]
    )
    occurring_sets = [np.unique(shares[:, m]) for m in range(tenants)]
    listed = np.full((tenants, max(map(len, occurring_sets)) + 1), -1, np.int64)
    for m, occurring in enumerate(occurring_sets):
        listed[m, : len(occurring)] = occurring
    sizes = len(space.geometry.sizes)
    pattern = np.full((tenants, 8**sizes), -1, np.int64)
    weights = 8 ** np.arange(sizes)
    for m in range(tenants):
        codes = serving.counts[m, : serving.patterns[m]].astype(np.int64) @ weights
        pattern[m, codes] = np.arange(serving.patterns[m])
    share_begin = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    starts, start_facts = _starts_of(space, serving.durations, share_begin)
    return Choices(
        starts=starts,
        start_facts=start_facts,
        shares=np.ascontiguousarray(shares),
        share_begin=share_begin,
        sets_of=listed,
        pattern=pattern,
        place_size=space.geometry.place_size,
        way_option=space.arrays.way_option,
        way_mask=space.arrays.way_mask,
        durations=serving.durations,
        lead=serving.lead,
        accuracy=serving.accuracy,
        rearrangements=symmetries(problem.board),
    )


def _starts_of(space: Space, durations: Ints, share_begin: Ints) -> tuple[Ints, Ints]:
    """`starts` and `start_facts` of the choices: retrainings that can run at the same time."""
    tenants, geo = len(durations), space.geometry
    lengths = durations.reshape(tenants, -1, len(geo.sizes))
    shortest = np.where(lengths > 0, lengths, MAX_COUNT).min(axis=1)
    starts, facts = [], []
    open_starts: list[tuple[tuple[int, ...], int, int, int]] = [((-1,) * tenants, 0, 0, 0)]
    while open_starts:
        start, taken, bits, longest = open_starts.pop()
        starts.append(start)
        facts.append((taken, bits, longest))
        for m in range(bits.bit_length(), tenants):
            for at, (mask, size) in enumerate(zip(geo.place_mask, geo.place_size, strict=True)):
                slots, both = int(shortest[m, size]), taken | int(mask)
                if slots < MAX_COUNT and not taken & mask and _has_shares(share_begin, both):
                    more = (*start[:m], at, *start[m + 1 :])
                    open_starts.append((more, both, bits | 1 << m, max(longest, slots)))
    return np.array(starts, np.int64), np.array(facts, np.int64)


def _has_shares(share_begin: Ints, mask: int) -> bool:
    return bool(share_begin[mask] < share_begin[mask + 1])
