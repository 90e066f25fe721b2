"""Kinds of tenants, their goodput as planned, and upper bounds on it by prices of instances.

Tenants of one entry are of one kind. A placement lasts longer than a window, so the forecast of a
kind combines scenarios of arrivals from several of its tenants. Goodput is that of the exact
planner under the `paper` charge, with as many retrainings as fit: ten times as fast as under
`survivors`, proven optimal, and about half a percent away from it (docs/cluster.md).

The bounds are a Lagrangian relaxation.

For one GPU: `values` + `rent` bounds every plan of every set of tenants on one board, for any
non-negative prices. In a slot the plan's instances fit on the board, so their total price is at
most that of the most expensive configuration: over the window at most `rent`. The plan's goodput
is therefore at most `rent` plus, per tenant, its goodput minus the price of its instances. A tenant
holds one pattern of instances per slot for inference and possibly one instance for its retraining;
its goodput in a slot is at most accuracy x E[min(received, capability of the pattern)]. `values` is
the maximum of that difference over all schedules of the tenant, with free changes and an optional
retraining anywhere in the window. The other tenants on the board do not matter.

For many GPUs: the total goodput is at most the sum of the rents plus, for every tenant, its value
on the board where that is highest. The sum is convex in the prices; subgradient steps against the
surplus lower it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from migrator.core.catalogue import Board, configurations, multisets
from migrator.core.cluster import ClusterScenario, ClusterTenant, SparingService
from migrator.core.errors import InfeasibleError, InputError, SolverError
from migrator.core.problem import Charge, Problem, Tenant
from migrator.core.scenario import ServedTenant
from migrator.forecast.forecaster import Forecaster
from migrator.forecast.selection import forecaster
from migrator.plan.exact.prices import LAST_STEP, move
from migrator.plan.exact.tables import NEVER, expected_throughput
from migrator.policies.planning import planned, problem_of
from migrator.policies.policy import Observation, RetrainingState, TenantView
from migrator.workload.arrivals import TenantArrivals

SAMPLED_TENANTS = 16
"""Number of tenants of a kind whose histories are used, evenly spaced."""
POOLED_STEPS, OWN_STEPS = 200, 100
"""Subgradient steps for the whole cluster, and for one set of tenants or another load."""


@dataclass(frozen=True, eq=False)
class TenantKind:
    """Tenants that do not differ for the planner."""

    views: Mapping[str, TenantView]
    """Board -> a tenant of this kind as a policy sees it at the window's start."""
    mean_rps: float

    def tenant(self, board: Board, slot_s: float, slots: int) -> Tenant | None:
        """A tenant of this kind in a planning problem; None if the board cannot serve it."""
        if board.name not in self.views:
            return None
        return window_problem(board, slot_s, slots, (self.views[board.name],)).tenants[0]


def window_problem(board: Board, slot_s: float, slots: int, views: Sequence[TenantView]) -> Problem:
    """The next window of these tenants on the empty board."""
    return problem_of(observation_of(board, slot_s, slots, views), Charge.PAPER)


def observation_of(
    board: Board, slot_s: float, slots: int, views: Sequence[TenantView]
) -> Observation:
    """The board at a window's start; tenants get distinct names, since kinds share a view."""
    named = tuple(
        replace(each, service=replace(each.service, tenant=f"{number}"))
        for number, each in enumerate(views)
    )
    return Observation(board, slot_s, slots, 0, named, ())


def tenant_kinds(scenario: ClusterScenario) -> dict[int, TenantKind]:
    """Entry -> the kind of its tenants."""
    ahead = forecaster(scenario.forecaster)
    members: dict[int, list[ClusterTenant]] = {}
    for each in scenario.tenants:
        members.setdefault(each.entry, []).append(each)
    return {entry: _kind(scenario, each, ahead) for entry, each in members.items()}


def _kind(
    scenario: ClusterScenario, members: Sequence[ClusterTenant], ahead: Forecaster
) -> TenantKind:
    spaced = np.unique(np.linspace(0, len(members) - 1, SAMPLED_TENANTS).astype(int))
    rows = [_ahead(scenario, members[index], ahead) for index in spaced]
    count = max(len(each) for each in rows)
    mixed = np.array(
        [rows[row % len(rows)][row % len(rows[row % len(rows)])] for row in range(count)]
    )
    views = {board: _view(scenario, served, mixed) for board, served in members[0].served.items()}
    return TenantKind(views, float(mixed.mean()) / scenario.slot_s)


def _ahead(
    scenario: ClusterScenario, tenant: ClusterTenant, ahead: Forecaster
) -> NDArray[np.float64]:
    served = next(iter(tenant.served.values()))
    arrivals = TenantArrivals(served.trace, scenario.slot_s, scenario.seed, 0)
    history = arrivals.slots(served.offset_s % scenario.slot_s, served.offset_s)
    return ahead.ahead(history, scenario.slots, scenario.slots)


def _view(
    scenario: ClusterScenario, served: ServedTenant, ahead: NDArray[np.float64]
) -> TenantView:
    service = served.service
    first = served.drifts[0] if served.drifts else None
    accuracy = first.accuracy_pre if first is not None else 1.0
    if not isinstance(service, SparingService):
        raise InputError(f"{served.name}: not from a cluster scenario; read it with read_cluster")
    return TenantView(
        service=replace(service, spare=scenario.rules.spare),
        history=np.empty(0),
        ahead=ahead,
        retraining=None
        if first is None or first.seconds is None
        else RetrainingState(accuracy, first.accuracy_expected, first.seconds, 0.0, None),
        overhead_s=service.profile.overhead.total_s(mig=True, prepared=scenario.prepared),
        accuracy=accuracy,
    )


def planned_goodput(seen: Observation) -> float:
    """Return the expected number of requests of the next window answered in time and correctly."""
    try:
        return planned(seen, Charge.PAPER)[1].goodput
    except (SolverError, InfeasibleError):
        pass
    # no schedule with all retrainings was found in time: plan without retrainings
    served = tuple(replace(each, retraining=None) for each in seen.tenants)
    try:
        return planned(replace(seen, tenants=served), Charge.PAPER)[1].goodput
    except SolverError:
        return 0.0


@dataclass(frozen=True, eq=False)
class Priced:
    """Prices with the values, rents and bound that follow from them, per board."""

    prices: tuple[Floats, ...]
    values: Floats
    """[board, kind]"""
    rents: Floats
    """[board]"""
    bound: float
    """For `gpus` GPUs of each board and `weights` tenants of each kind."""


def find_prices(
    worths: Sequence[Worth], gpus: Sequence[float], weights: Floats, steps: int
) -> Priced:
    """Find good prices for `gpus` and `weights`; the bound holds for any prices.

    The search uses blocks of slots and only kinds of positive weight.
    """
    present = np.flatnonzero(weights)
    sought = [each.coarse.only(present) for each in worths]
    blocks = _ascended(sought, gpus, weights[present], steps)
    prices = []
    for worth, each in zip(worths, blocks, strict=True):
        per_block = worth.before.shape[1] // len(each)
        prices.append(np.repeat(each / per_block, per_block, axis=0))
    values, rents = values_at(worths, prices)
    return Priced(tuple(prices), values, rents, bound_of(values, rents, gpus, weights))


def _ascended(
    worths: Sequence[Worth], gpus: Sequence[float], weights: Floats, steps: int
) -> list[Floats]:
    """The best prices found in `steps` steps."""
    total = max(float(sum(gpus)), 1e-9)
    share, part = np.array(gpus, np.float64) / total, weights / total
    prices = [_first(worth, part) for worth in worths]
    length = 2.0 * max(float(np.mean([each[:, 0].mean() for each in prices])), 1e-9)
    means = [np.zeros_like(each) for each in prices]
    squares = [np.zeros_like(each) for each in prices]
    best, lowest = prices, np.inf
    for step in range(steps):
        found = [best_responses(worth, each) for worth, each in zip(worths, prices, strict=True)]
        values = np.array([each.values for each in found])
        bound = bound_of(values, np.array([each.rent for each in found]), gpus, weights)
        if bound < lowest:
            best, lowest = [each.copy() for each in prices], bound
        home = values.argmax(axis=0)
        for b, worth in enumerate(worths):
            surplus = share[b] * offered(worth, prices[b])
            surplus -= used(worth, found[b], np.where(home == b, part, 0.0))
            now = length * LAST_STEP ** (step / steps)
            move(prices[b], surplus, means[b], squares[b], step, now, 0.0)
    return best


def bound_of(values: Floats, rents: Floats, gpus: Sequence[float], weights: Floats) -> float:
    """Upper bound on the goodput of any placement of `weights` tenants on `gpus` GPUs."""
    return float(rents @ np.array(gpus, np.float64) + weights @ values.max(axis=0))


def values_at(worths: Sequence[Worth], prices: Sequence[Floats]) -> tuple[Floats, Floats]:
    """([board, kind] values, [board] rents) at given prices."""
    found = [best_responses(worth, each) for worth, each in zip(worths, prices, strict=True)]
    return np.array([each.values for each in found]), np.array([each.rent for each in found])


def _first(worth: Worth, part: Floats) -> Floats:
    """Initial prices: a GPC costs half of a slot's goodput per GPC of the board."""
    slot = part @ np.maximum(worth.after.max(axis=2), 0.0)
    return np.outer(0.5 * slot / worth.gpcs[-1], worth.gpcs)


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BLOCKS = 40
"""Approximate number of blocks of slots when searching for prices."""


@dataclass(frozen=True, eq=False)
class Worth:
    """Tables of some kinds on one board; [kind, ...] throughout."""

    gpcs: Floats
    """[size]"""
    counts: Floats
    """[pattern, size]"""
    offered: Floats
    """[configuration, size]"""
    before: Floats
    """[kind, slot, pattern]: goodput of a slot before a retraining; NEVER if not allowed."""
    after: Floats
    """The same after the retraining."""
    durations: Ints
    """[kind, size]: slots of a retraining, 0 if not possible."""
    needs: Ints
    """[kind, size]: 1 if the kind always needs an instance of at least that size."""
    able: NDArray[np.bool_]
    """[kind]: whether the board can serve it."""

    @cached_property
    def coarse(self) -> Worth:
        """The tables in blocks of slots, for a faster search of prices; not a bound."""
        slots = self.before.shape[1]
        per_block = next(
            each for each in range(-(-slots // BLOCKS), slots + 1) if slots % each == 0
        )
        blocks = slots // per_block
        shape = (len(self.before), blocks, per_block, -1)
        return replace(
            self,
            before=self.before.reshape(shape).sum(axis=2),
            after=self.after.reshape(shape).sum(axis=2),
            durations=-(-self.durations // per_block),
        )

    @cached_property
    def retrainings(self) -> tuple[Ints, NDArray[np.bool_]]:
        """[kind, size, end]: first slot of a retraining with that end; whether it can end there."""
        ends, taken = np.arange(self.before.shape[1] + 1), self.durations[:, :, None]
        return np.maximum(ends - taken, 0), (taken > 0) & (ends >= taken)

    def only(self, kinds: Ints) -> Worth:
        return replace(
            self,
            before=self.before[kinds],
            after=self.after[kinds],
            durations=self.durations[kinds],
            needs=self.needs[kinds],
            able=self.able[kinds],
        )


def tabulate(board: Board, slots: int, tenants: Sequence[Tenant | None]) -> Worth:
    """Tabulate one tenant of each kind; None for a kind that the board cannot serve."""
    known = multisets(board)
    counts = np.array([[p.count(size) for size in board.sizes] for p in known], np.float64)
    shape = (len(tenants), slots, len(known))
    before, after = np.full(shape, NEVER), np.full(shape, NEVER)
    durations = np.zeros((len(tenants), len(board.sizes)), np.int64)
    needs = np.zeros_like(durations)
    for kind, tenant in enumerate(tenants):
        if tenant is None:
            continue
        able = np.array([_may_hold(tenant, p) for p in known])
        total = counts[able] @ np.array([tenant.capability.get(size, 0.0) for size in board.sizes])
        served = expected_throughput(tenant, total)
        before[kind][:, able] = tenant.accuracy_pre * served
        after[kind][:, able] = tenant.accuracy_post * served
        for size, taken in (tenant.retraining_slots or {}).items():
            durations[kind, board.sizes.index(size)] = taken
        least = min(size for size in tenant.capability if size >= tenant.min_gpcs)
        needs[kind] = [size <= least for size in board.sizes]
    return Worth(
        gpcs=np.array(board.sizes, np.float64),
        counts=counts,
        offered=np.array(
            [[p.count(size) for size in board.sizes] for p in configurations(board)], np.float64
        ),
        before=before,
        after=after,
        durations=durations,
        needs=needs,
        able=np.array([each is not None for each in tenants]),
    )


def _may_hold(tenant: Tenant, pattern: tuple[int, ...]) -> bool:
    return max(pattern) >= tenant.min_gpcs and all(size in tenant.capability for size in pattern)


@dataclass(frozen=True, eq=False)
class Responses:
    """Best responses of the kinds and of the board to prices."""

    values: Floats
    """[kind]: its best schedule's goodput minus cost; NEVER if the board cannot serve it."""
    rent: float
    """Price of the most expensive configuration, summed over the slots."""
    schedules: tuple[Ints, Ints, Ints]
    """[kind, slot] pattern; [kind] end and size of its retraining, -1 without one."""


def best_responses(worth: Worth, prices: Floats) -> Responses:
    """The best response of every kind and of the board to `prices` [slot, size]."""
    slots, sizes = prices.shape
    cost = prices @ worth.counts.T
    first, then = worth.before - cost, worth.after - cost
    until, later, rents = _sums(first.max(axis=2)), _sums(then.max(axis=2)), _sums(prices.T)
    best, end, size = until[:, -1].copy(), np.full(len(first), slots), np.full(len(first), -1)
    if worth.durations.any():
        begins, may_end = worth.retrainings
        gained = until + (later[:, -1:] - later)
        value = gained[:, None] - (rents - rents[np.arange(sizes)[:, None], begins])
        value = np.where(may_end, value, NEVER).reshape(len(first), -1)
        at = value.argmax(axis=1)
        found = value[np.arange(len(at)), at]
        better = found > best
        best[better] = found[better]
        size[better], end[better] = np.divmod(at[better], slots + 1)
    held_first, held_then = first.argmax(axis=2), then.argmax(axis=2)
    held = np.where(np.arange(slots) < end[:, None], held_first, held_then)
    rent = float((prices @ worth.offered.T).max(axis=1).sum())
    return Responses(np.where(worth.able, best, NEVER), rent, (held, end, size))


def used(worth: Worth, found: Responses, weights: Floats) -> Floats:
    """[slot, size]: instances that `weights` tenants of each kind hold in their best schedules."""
    held, end, size = found.schedules
    total: Floats = np.einsum("k,kts->ts", weights, worth.counts[held])
    for kind in np.flatnonzero((size >= 0) & (weights != 0)):
        begin = end[kind] - worth.durations[kind, size[kind]]
        total[begin : end[kind], size[kind]] += weights[kind]
    return total


def offered(worth: Worth, prices: Floats) -> Floats:
    """[slot, size]: instances of the configuration with the highest price."""
    rented: Floats = worth.offered[(prices @ worth.offered.T).argmax(axis=1)]
    return rented


def _sums(values: Floats) -> Floats:
    """Cumulative sums along the last axis, beginning with 0."""
    sums = np.zeros((*values.shape[:-1], values.shape[-1] + 1))
    np.cumsum(values, axis=-1, out=sums[..., 1:])
    return sums


SAMPLED = 40
_AT_ONCE = 100
"""Number of kinds whose tables are in memory at the same time."""


def pooled_bound(scenario: ClusterScenario, tenants: Sequence[TenantKind]) -> float:
    """Return an upper bound on the goodput of any placement of these tenants in a window.

    Prices are searched for a sample of the tenants; the bound is summed over all of them.
    """
    if not tenants:
        return 0.0
    boards = list(scenario.boards.values())
    gpus = [sum(each.board == board for each in scenario.gpus) for board in boards]
    kinds = list({id(each): each for each in tenants}.values())
    many = Counter(map(id, tenants))
    spaced = np.unique(np.linspace(0, len(kinds) - 1, SAMPLED).astype(int))
    order = sorted(kinds, key=lambda each: each.mean_rps)
    sample = [order[at] for at in spaced]
    weights = np.full(len(sample), len(tenants) / len(sample))
    found = find_prices(tabulate_kinds(scenario, sample), gpus, weights, POOLED_STEPS)
    values: list[Floats] = []
    for begin in range(0, len(kinds), _AT_ONCE):
        some = tabulate_kinds(scenario, kinds[begin : begin + _AT_ONCE])
        values.append(values_at(some, found.prices)[0])
    weight = np.array([many[id(each)] for each in kinds], np.float64)
    return bound_of(np.concatenate(values, axis=1), found.rents, gpus, weight)


def tabulate_kinds(scenario: ClusterScenario, kinds: Sequence[TenantKind]) -> tuple[Worth, ...]:
    """The tables of these kinds on every board of the scenario."""
    slot_s, slots = scenario.slot_s, scenario.slots
    return tuple(
        tabulate(board, slots, [each.tenant(board, slot_s, slots) for each in kinds])
        for board in scenario.boards.values()
    )
