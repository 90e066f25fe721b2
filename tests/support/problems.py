"""Small random problems: integers and few values, so that ties and clipping happen."""

from __future__ import annotations

import string
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from migrator.core.catalogue import Board
from migrator.core.catalogue import board as board_called
from migrator.core.problem import (
    Charge,
    Initial,
    Instance,
    Kind,
    Problem,
    RetrainingConfiguration,
    RunningRetraining,
    Task,
    Tenant,
)
from support.make import lengths, only

OVERHEADS_S = (0.0, 0.3, 1.0, 1.5, 2.5)

_ATTEMPTS = 20
"""How often a random initial state is tried before a simpler one is given."""


def random_problem(
    seed: int,
    *,
    tenants: int,
    slots: int,
    board: str = "A30-24GB",
    charge: Charge,
    initial: bool = False,
    scenarios: int = 1,
    optional: bool = False,
    configurations: int = 1,
    preferences: bool = False,
) -> Problem:
    """A problem that is feasible for most seeds; about half of the tenants retrain.

    With `initial`, something is held before slot 0 and some retrainings run already. With
    `optional`, most retrainings may be left out, and some are worth something after the window.
    Those who retrain have so many `configurations`, of which some are of no use. With
    `preferences`, tenants have weights, and about half of them a floor.
    """
    rng = np.random.default_rng(seed)
    on = board_called(board)
    slot_s = float(rng.choice([1.0, 2.0, 0.5], p=[0.6, 0.2, 0.2]))
    minima = _minima(rng, on, tenants)
    drawn = tuple(
        _tenant(rng, on, string.ascii_lowercase[index], least, slots, scenarios)
        for index, least in enumerate(minima)
    )
    if configurations > 1:
        drawn = tuple(_with_several(rng, on, tenant, slots, configurations) for tenant in drawn)
    before = _initial(rng, on, drawn, slots) if initial else None
    if optional:
        drawn = tuple(
            replace(
                tenant,
                retraining_optional=bool(rng.random() < 0.8),
                requests_after=float(rng.choice([0.0, 0.5, 2.0])) * tenant.requests,
            )
            for tenant in drawn
        )
    if preferences:
        drawn = tuple(
            replace(
                tenant,
                weight=float(rng.choice([0.25, 1.0, 3.0])),
                floor=float(rng.choice([0.0, 0.0, 0.6, 0.9, 1.0])),
            )
            for tenant in drawn
        )
    return Problem(on, slot_s, slots, charge, drawn, before)


def problems(
    *,
    max_tenants: int = 2,
    max_slots: int = 4,
    board: str = "A30-24GB",
    charges: tuple[Charge, ...] = tuple(Charge),
    max_scenarios: int = 2,
    max_configurations: int = 1,
) -> st.SearchStrategy[Problem]:
    """Random problems up to these sizes, with and without an initial state."""
    return st.builds(
        random_problem,
        seed=st.integers(0, 2**32 - 1),
        tenants=st.integers(1, max_tenants),
        slots=st.integers(1, max_slots),
        board=st.just(board),
        charge=st.sampled_from(charges),
        initial=st.booleans(),
        scenarios=st.integers(1, max_scenarios),
        optional=st.booleans(),
        configurations=st.integers(1, max_configurations),
        preferences=st.booleans(),
    )


def _minima(rng: np.random.Generator, board: Board, tenants: int) -> list[int]:
    """Each tenant's min_gpcs; 2 only while everyone still fits, with a slice to retrain on."""
    spare = board.compute_slices - tenants - 1
    minima = []
    for _ in range(tenants):
        least = 2 if spare > 0 and rng.random() < 0.3 else 1
        spare -= least - 1
        minima.append(least)
    return minima


def _tenant(
    rng: np.random.Generator, board: Board, name: str, least: int, slots: int, scenarios: int
) -> Tenant:
    capability = _capability(rng, board, least)
    most = int(1.5 * max(capability.values())) + 2
    received = rng.integers(0, most, size=(scenarios, slots))
    before = int(rng.integers(6, 18))
    return Tenant(
        name=name,
        received=tuple(tuple(float(count) for count in row) for row in received),
        capability=capability,
        accuracy_pre=before / 20,
        # Rarely the new model is not better, and it must be trained all the same.
        configurations=only(
            min(20, before + int(rng.integers(-1, 8))) / 20,
            _retraining_slots(rng, board, slots) if rng.random() < 0.5 else None,
        ),
        overhead_s=float(rng.choice(OVERHEADS_S)),
        min_gpcs=least,
    )


def with_better_ones(problem: Problem) -> Problem:
    """The problem with a second configuration that takes a slot longer and is more accurate."""
    tenants = []
    for tenant in problem.tenants:
        choices = tenant.configurations
        if any(choice.slots for choice in choices):
            (first,) = choices
            slots = {gpcs: length + 1 for gpcs, length in first.slots.items()}
            better = RetrainingConfiguration(first.accuracy + 1 / 16, slots, "longer")
            choices = (replace(first, name="short"), better)
        tenants.append(replace(tenant, configurations=choices))
    return replace(problem, tenants=tuple(tenants))


def with_far_too_many_requests(tenant: Tenant) -> Tenant:
    """The tenant with a floor for all of its requests, most of which no plan answers."""
    rows = tuple(tuple(3000 * count for count in row) for row in tenant.received)
    capability = {gpcs: 3000 * count for gpcs, count in tenant.capability.items()}
    return replace(tenant, received=rows, capability=capability, floor=1.0)


def _with_several(
    rng: np.random.Generator, board: Board, tenant: Tenant, slots: int, count: int
) -> Tenant:
    """The tenant with further configurations of other lengths and accuracies."""
    (first,) = tenant.configurations
    if not first.slots:
        return tenant
    others = [
        RetrainingConfiguration(
            min(20, round(20 * tenant.accuracy_pre) + int(rng.integers(-1, 8))) / 20,
            _retraining_slots(rng, board, slots),
            f"way {number}",
        )
        for number in range(2, count + 1)
    ]
    return replace(tenant, configurations=(replace(first, name="way 1"), *others))


def _capability(rng: np.random.Generator, board: Board, least: int) -> dict[int, float]:
    """Never falling with the size; the smallest size of use is always named, others mostly."""
    capability, served = {}, int(rng.integers(1, 5))
    for gpcs in board.sizes:
        if gpcs in (1, least) or rng.random() < 0.8:
            capability[gpcs] = float(served)
        served += int(rng.integers(0, 5))
    return capability


def _retraining_slots(rng: np.random.Generator, board: Board, slots: int) -> dict[int, int]:
    """Never longer on more GPCs; possible on the smallest size inside the window."""
    lengths, length = {}, int(rng.integers(1, slots + 1))
    for gpcs in board.sizes[:-1]:
        if gpcs == 1 or rng.random() < 0.7:
            lengths[gpcs] = length
        length = int(rng.integers(1, length + 1))
    return lengths


def _initial(
    rng: np.random.Generator, board: Board, tenants: tuple[Tenant, ...], slots: int
) -> Initial:
    """What slot 0 can go on with, less some inference instances and with some unused ones."""
    retraining = [tenant for tenant in tenants if lengths(tenant) and rng.random() < 0.6]
    for _ in range(_ATTEMPTS):
        held = _pack(rng, board, _needs(tenants, retraining), _extras(rng, board, tenants))
        if held is not None:
            running = (
                RunningRetraining(
                    tenant.name, int(rng.integers(1, slots + 1)), tenant.configurations[0].name
                )
                for tenant in retraining
            )
            return Initial(_thinned(rng, held), tuple(running))
    return Initial()


_Wish = tuple[Task | None, set[int]]
"""A task, or nobody, that is to hold an instance, and the sizes that will do."""


def _needs(tenants: tuple[Tenant, ...], retraining: list[Tenant]) -> list[_Wish]:
    needs: list[_Wish] = [
        (Task(tenant.name, Kind.RETRAINING), set(lengths(tenant))) for tenant in retraining
    ]
    for tenant in tenants:
        enough = {gpcs for gpcs in tenant.capability if gpcs >= tenant.min_gpcs}
        needs.append((Task(tenant.name, Kind.INFERENCE), enough))
    return needs


def _extras(rng: np.random.Generator, board: Board, tenants: tuple[Tenant, ...]) -> list[_Wish]:
    """Further inference instances and unused ones."""
    wishes: list[_Wish] = [(None, set(board.sizes))]
    wishes += [(Task(tenant.name, Kind.INFERENCE), set(tenant.capability)) for tenant in tenants]
    return [wishes[int(at)] for at in rng.integers(len(wishes), size=board.compute_slices - 1)]


def _pack(
    rng: np.random.Generator, board: Board, needs: list[_Wish], extras: list[_Wish]
) -> list[Instance] | None:
    """The needs on random spots, then the extras that still fit; None where a need does not."""
    held: list[Instance] = []
    for at, (task, sizes) in enumerate([*needs, *extras]):
        spots = [instance for instance in _free(board, held) if instance.gpcs in sizes]
        if spots:
            spot = spots[int(rng.integers(len(spots)))]
            held.append(Instance(spot.start, spot.gpcs, task))
        elif at < len(needs):
            return None
    return held


def _free(board: Board, held: list[Instance]) -> list[Instance]:
    """Every instance that fits beside those held."""
    widths = {gpcs: profile.memory_slices for gpcs, profile in board.plain_profiles.items()}
    taken = {
        at
        for instance in held
        for at in range(instance.start, instance.start + widths[instance.gpcs])
    }
    left = board.compute_slices - sum(instance.gpcs for instance in held)
    return [
        Instance(start, gpcs)
        for gpcs, profile in board.plain_profiles.items()
        for start in profile.starts
        if gpcs <= left and taken.isdisjoint(range(start, start + widths[gpcs]))
    ]


def _thinned(rng: np.random.Generator, held: list[Instance]) -> tuple[Instance, ...]:
    """Without some of the inference and unused instances; running retrainings stay."""
    return tuple(
        instance
        for instance in held
        if (instance.task is not None and instance.task.kind == Kind.RETRAINING)
        or rng.random() < 0.8
    )
