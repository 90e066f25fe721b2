"""Every MIG policy on random observations: whatever it decides can be done on the board."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.amount import amount
from support.mig_views import RPS, TRAINING_S, curve, profile

from migrator.core.catalogue import Board, board, find_placement, placement_sets
from migrator.core.errors import InputError
from migrator.core.problem import Holding, Instance, Kind, Task
from migrator.core.profiles import Service
from migrator.policies import fixed_shares, migrator, miso, paris
from migrator.policies.layouts import least_gpcs, usable_sizes
from migrator.policies.policy import Observation, Policy, RetrainingState, Sharing, TenantView

QUICK: tuple[Policy, ...] = (
    *(policy for policy in fixed_shares.POLICIES if policy.sharing is Sharing.MIG),
    *paris.POLICIES,
    *miso.POLICIES,
)
PLANNING: tuple[Policy, ...] = tuple(
    policy for policy in migrator.POLICIES if policy.every_s is None
)
BOARDS = ("H200-141GB", "A100-40GB", "A30-24GB")
SLOTS, SLOT_S = 5, 20.0


# Random observations.


def random_observation(seed: int) -> Observation:
    """One to three tenants; mostly something is held, and some retrainings run or have ended."""
    rng = np.random.default_rng(seed)
    on = board(str(rng.choice(BOARDS)))
    services = _services(rng, int(rng.integers(1, 4)), on.compute_slices)
    held = _held(rng, on, services) if rng.random() < 0.8 else ()
    slot = int(rng.integers(0, SLOTS)) if held else 0
    views = tuple(_view(rng, service, held, slot) for service in services)
    return Observation(on, SLOT_S, SLOTS, slot, views, held)


def _services(rng: np.random.Generator, tenants: int, gpcs: int) -> list[Service]:
    """Some are too slow on a 1g or ask for 2 GPCs, as long as all fit."""
    services, spare = [], gpcs - tenants
    for name in "abc"[:tenants]:
        factor = float(rng.uniform(0.01, 0.1))
        latency_ms = {
            batch: curve({sms: 1e3 / rps * grows * factor for sms, rps in RPS.items()})
            for batch, grows in {1: 1.0, 4: float(rng.uniform(1.0, 4.0))}.items()
        }
        demanding = spare > 0 and rng.random() < 0.4
        spare -= demanding
        slo_s = 0.08 * factor if demanding and rng.random() < 0.5 else 1.0
        batch = int(rng.integers(1, 5))
        services.append(Service(name, profile(latency_ms), slo_s, batch, 2 if demanding else 1))
    return services


def _held(rng: np.random.Generator, on: Board, services: list[Service]) -> tuple[Instance, ...]:
    """A legal allocation in which everybody is served; nothing where none was drawn in time."""
    sets = placement_sets(on)
    for _ in range(50):
        chosen = sets[rng.integers(len(sets))]
        order = [chosen[index] for index in rng.permutation(len(chosen))]
        held: list[Instance] = []
        for place in order:
            served = services[len(held)] if len(held) < len(services) else None
            task = _own(served, on, place.gpcs) or _any(rng, on, services, held, place.gpcs)
            if task is not None:
                held.append(Instance(place.start, place.gpcs, task))
        if {instance.task for instance in held} >= {
            Task(s.tenant, Kind.INFERENCE) for s in services
        }:
            return tuple(held)
    return ()


def _own(served: Service | None, on: Board, gpcs: int) -> Task | None:
    """The inference of the tenant whose turn it is, where it can live there."""
    if served is None or gpcs not in usable_sizes(served, on) or gpcs < least_gpcs(served, on):
        return None
    return Task(served.tenant, Kind.INFERENCE)


def _any(
    rng: np.random.Generator,
    on: Board,
    services: list[Service],
    held: list[Instance],
    gpcs: int,
) -> Task | None:
    """Once everybody is served: more inference, a retraining, or nobody."""
    if len(held) < len(services) or rng.random() < 0.2:
        return None
    drawn = services[rng.integers(len(services))]
    retraining = Task(drawn.tenant, Kind.RETRAINING)
    if rng.random() < 0.6 and all(instance.task != retraining for instance in held):
        return retraining
    return Task(drawn.tenant, Kind.INFERENCE) if gpcs in usable_sizes(drawn, on) else None


def _view(
    rng: np.random.Generator, served: Service, held: tuple[Instance, ...], slot: int
) -> TenantView:
    mine = [instance for instance in held if instance.task == Task(served.tenant, Kind.RETRAINING)]
    seconds = curve(TRAINING_S).scaled(float(rng.uniform(0.2, 2.0)))
    state = None
    if rng.random() < 0.7:
        started = mine and rng.random() < 0.7  # else what an earlier one held is held still
        done = float(rng.choice([0.0, rng.uniform()])) if started else 0.0
        state = RetrainingState(0.5, 0.8, seconds, done, mine[0] if started else None)
    rate = float(rng.uniform(0.0, 3e3))
    return TenantView(
        service=served,
        history=rng.poisson(rate * SLOT_S, int(rng.integers(0, 2 * SLOTS))).astype(np.float64),
        ahead=rng.poisson(rate * SLOT_S, (2, SLOTS - slot)).astype(np.float64),
        retraining=state,
        overhead_s=float(rng.choice([0.0, 1.0, 2.5])),
        accuracy=0.5,
    )


# What is wrong with a slot.


def faults(seen: Observation, slot: tuple[Holding, ...]) -> Iterator[str]:
    placed = []
    for instance in slot:
        assert isinstance(instance, Instance)
        placement = find_placement(seen.board, instance.start, instance.gpcs)
        if placement is None:
            yield f"there is no place for {instance}"
        else:
            placed.append(placement)
    for one, other in combinations(placed, 2):
        if one.overlaps(other):
            yield f"{one} overlaps {other}"
    if sum(instance.gpcs for instance in placed) > seen.board.compute_slices:
        yield "too many GPCs"
    for view in seen.tenants:
        yield from _tenant_faults(seen, view, slot)


def _tenant_faults(seen: Observation, view: TenantView, slot: tuple[Holding, ...]) -> Iterator[str]:
    sizes = [i.gpcs for i in _of(slot, view.name, Kind.INFERENCE)]
    if max(sizes, default=0) < view.service.min_gpcs:
        yield f"{view.name} has no instance of its minimum"
    if not set(sizes) <= set(usable_sizes(view.service, seen.board)):
        yield f"{view.name} serves on a size that misses its objective"
    if len(_of(slot, view.name, Kind.RETRAINING)) > 1:
        yield f"{view.name} retrains twice"


def _of(slot: tuple[Holding, ...], tenant: str, kind: Kind) -> list[Instance]:
    task = Task(tenant, kind)
    return [
        instance for instance in slot if isinstance(instance, Instance) and instance.task == task
    ]


def unfinished(view: TenantView, seen: Observation) -> tuple[Instance, float] | None:
    """The instance that must be kept, and for how many seconds at least."""
    state = view.retraining
    if state is None or not isinstance(state.holding, Instance):
        return None
    sms = seen.board.sms_of(state.holding.gpcs)
    return state.holding, (1 - state.done) * state.seconds.at(sms)


def require_legal(policy: Policy, seen: Observation) -> None:
    slots = policy.decide(seen).slots
    assert 1 <= len(slots) <= seen.slots_left
    for slot in slots:
        assert not list(faults(seen, slot)), slot
    for view in seen.tenants:
        kept = unfinished(view, seen)
        if kept is None:
            continue
        for index, slot in enumerate(slots):
            if index * SLOT_S < kept[1]:
                assert kept[0] in slot, "a running retraining lost its instance"


seeds = st.integers(0, 2**32 - 1)


@given(seeds)
@settings(max_examples=amount(30, 60), deadline=None)
def test_every_decision_can_be_done(seed: int) -> None:
    seen = random_observation(seed)
    for policy in QUICK:
        if isinstance(policy, fixed_shares.Static) and not _has_room(policy, seen):
            with pytest.raises(InputError):
                policy.decide(seen)
        else:
            require_legal(policy, seen)


def _has_room(policy: fixed_shares.Static, seen: Observation) -> bool:
    """A split is refused only where it has to be made: at a window's start."""
    needed = sum(least_gpcs(view.service, seen.board) for view in seen.tenants)
    fits = seen.board.compute_slices == 7 and needed <= policy.inference_gpcs
    return fits or (seen.slot > 0 and bool(seen.held))


@given(seeds)
@settings(max_examples=12, deadline=None)
def test_every_plan_can_be_done(seed: int) -> None:
    seen = random_observation(seed)
    for policy in PLANNING:
        require_legal(policy, seen)


@given(seeds)
@settings(max_examples=25, deadline=None)
def test_asked_again_nothing_moves(seed: int) -> None:
    """The same tenants a moment later, with what was decided held: nothing has to change."""
    seen = random_observation(seed)
    idle = tuple(
        TenantView(v.service, v.history, v.ahead, None, v.overhead_s, v.accuracy)
        for v in seen.tenants
    )
    for policy in (fixed_shares.EqualMig(), *paris.POLICIES, *miso.POLICIES):
        first = Observation(seen.board, SLOT_S, SLOTS, 0, idle, seen.held)
        (held,) = policy.decide(first).slots
        again = Observation(seen.board, SLOT_S, SLOTS, 0, idle, held)
        assert set(policy.decide(again).slots[0]) == set(held)


def test_they_all_share_by_mig_and_have_names_of_their_own() -> None:
    everyone = [*QUICK, *PLANNING]
    assert {policy.sharing for policy in everyone} == {Sharing.MIG}
    assert len({policy.name for policy in everyone}) == len(everyone) == 15
    assert all(policy.summary for policy in everyone)
