"""Infeasibility told without search: each rule by name, and never a feasible problem refused."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.amount import amount
from support.make import lengths, only

from migrator.core.catalogue import Placement, board, boards, find_placement, multisets, placements
from migrator.core.errors import InfeasibleError
from migrator.core.problem import (
    Charge,
    Initial,
    Instance,
    Kind,
    Problem,
    RunningRetraining,
    Task,
    Tenant,
)
from migrator.planning.feasibility import require_feasible

A100 = "A100-40GB"
A30 = "A30-24GB"
ALL_SIZES = (1, 2, 3, 4, 7)


def tenant(
    name: str,
    retraining: dict[int, int] | None = None,
    *,
    minimum: int = 1,
    sizes: tuple[int, ...] = ALL_SIZES,
) -> Tenant:
    capability = dict.fromkeys(sizes, 1.0)
    return Tenant(name, ((1.0,),), capability, 0.5, only(0.9, retraining), 1.0, minimum)


def problem(
    *tenants: Tenant, slots: int = 10, gpu: str = A100, initial: Initial | None = None
) -> Problem:
    return Problem(board(gpu), 1.0, slots, Charge.PAPER, tenants, initial)


def running(*held: tuple[str, int, int, int]) -> Initial:
    """Retrainings that run: tenant, start slice, GPCs, slots left."""
    return Initial(
        tuple(Instance(start, gpcs, Task(name, Kind.RETRAINING)) for name, start, gpcs, _ in held),
        tuple(RunningRetraining(name, left) for name, _, _, left in held),
    )


def many(count: int, retraining: dict[int, int] | None = None, minimum: int = 1) -> list[Tenant]:
    return [tenant(f"t{index}", retraining, minimum=minimum) for index in range(count)]


def refuses(candidate: Problem) -> bool:
    try:
        require_feasible(candidate)
    except InfeasibleError:
        return True
    return False


REFUSED = {
    "min_gpcs above the largest size": (
        problem(tenant("a"), tenant("b", minimum=8)),
        "tenants[1].min_gpcs: ",
        "lower min_gpcs",
    ),
    "min_gpcs above every capability size": (
        problem(tenant("a", minimum=3, sizes=(1, 2))),
        "tenants[0].capability: ",
        "add one or lower min_gpcs",
    ),
    "more tenants than instances": (problem(*many(8)), "tenants: ", "at most 7"),
    "more tenants than instances on a small board": (
        problem(*many(5), gpu=A30),
        "tenants: ",
        "at most 4",
    ),
    "minimum instances do not fit together": (
        problem(*many(2, minimum=4)),
        "tenants: ",
        "4g, 4g do not fit",
    ),
    "3g takes four memory slices": (
        problem(*many(2, minimum=3), tenant("c")),
        "tenants: ",
        "3g, 3g, 1g do not fit",
    ),
    "min_gpcs between sizes takes the next one": (
        problem(tenant("a", minimum=5), tenant("b")),
        "tenants: ",
        "7g, 1g do not fit",
    ),
    "capability without small sizes": (
        problem(tenant("a", sizes=(7,)), tenant("b")),
        "tenants: ",
        "7g, 1g do not fit",
    ),
    "window too short for any retraining": (
        problem(tenant("a"), tenant("b", {1: 30, 4: 11})),
        "tenants[1].retraining_slots: ",
        "at least 11 slots and slots is 10",
    ),
    "window too short for a running retraining": (
        problem(tenant("a"), initial=running(("a", 0, 1, 11))),
        "initial.retrainings: ",
        "11 more slots and slots is 10",
    ),
    "running retraining beside which the minimum does not fit": (
        problem(tenant("a", minimum=4), initial=running(("a", 0, 3, 1))),
        "initial.retrainings: ",
        "beside 3g@0",
    ),
    "two running retrainings beside which the minimum does not fit": (
        problem(*many(2, minimum=2), initial=running(("t0", 2, 1, 1), ("t1", 4, 3, 1))),
        "initial.retrainings: ",
        "beside 1g@2, 3g@4",
    ),
    "retraining that fits beside nobody": (
        problem(tenant("a", {7: 1})),
        "tenants[0].retraining_slots: ",
        "(7g)",
    ),
    "no room for a retraining on a full board": (
        problem(*many(6), tenant("last", {1: 1})),
        "tenants[6].retraining_slots: ",
        "offer a smaller size",
    ),
    "the size that fits is too slow and the fast one does not fit": (
        problem(tenant("a", {1: 11, 7: 1})),
        "tenants[0].retraining_slots: ",
        "(7g)",
    ),
    "a running retraining is in the way until too late": (
        problem(tenant("a", {4: 9}), tenant("b"), initial=running(("b", 0, 2, 2))),
        "tenants[0].retraining_slots: ",
        "running retrainings",
    ),
    "one retraining at a time is not enough": (
        problem(*many(6, {1: 2}), slots=11),
        "tenants: ",
        "at least 12 slots x instances",
    ),
    "a running retraining counts too": (
        problem(*many(5, {1: 2}), tenant("last"), slots=11, initial=running(("last", 0, 1, 2))),
        "tenants: ",
        "at least 12 slots x instances",
    ),
    "not enough GPCs for all retrainings": (
        problem(tenant("a", {1: 10}), tenant("b", {4: 10}), tenant("c", {2: 1}), slots=10),
        "tenants: ",
        "at least 52 slots x GPCs",
    ),
    "sizes nobody retrains on leave no room": (
        problem(tenant("a", {3: 6}), tenant("b", {3: 6}), tenant("c"), slots=10),
        "tenants: ",
        "at least 12 slots x instances",
    ),
    "sizes that end too late leave no room": (
        problem(tenant("a", {1: 11, 3: 6}), tenant("b", {1: 11, 3: 6}), tenant("c"), slots=10),
        "tenants: ",
        "at least 12 slots x instances",
    ),
    "not enough memory slices for all retrainings": (
        problem(tenant("a", {3: 6}), tenant("b", {3: 6}), tenant("c", {1: 3}), slots=10),
        "tenants: ",
        "at least 51 slots x memory slices",
    ),
}


@pytest.mark.parametrize(("refused", "key", "said"), REFUSED.values(), ids=REFUSED)
def test_refused_by_rule_with_a_remedy(refused: Problem, key: str, said: str) -> None:
    with pytest.raises(InfeasibleError) as caught:
        require_feasible(refused)
    sentence = str(caught.value)
    assert sentence.startswith(key)
    assert said in sentence
    assert sentence.isprintable()
    assert ";" in sentence, "what is wrong; the remedy"


ACCEPTED = {
    "seven tenants fill the board": problem(*many(7)),
    "two 3g side by side": problem(*many(2, minimum=3)),
    "a retraining as long as the window": problem(tenant("a", {1: 99, 4: 10})),
    "a slow size beside a fast one": problem(tenant("a", {1: 10, 7: 1})),
    "one retraining after the other": problem(*many(6, {1: 2}), slots=12),
    "retraining after the running one has ended": problem(
        tenant("a", {4: 9}), tenant("b"), initial=running(("b", 0, 2, 1))
    ),
    "retraining_slots do not count while a retraining runs": problem(
        tenant("a", {7: 99}), initial=running(("a", 0, 4, 10))
    ),
    "instances that serve before slot 0 bind nothing": problem(
        tenant("a", minimum=4),
        initial=Initial((Instance(0, 3, Task("a", Kind.INFERENCE)), Instance(4, 3, None))),
    ),
}


@pytest.mark.parametrize("accepted", ACCEPTED.values(), ids=ACCEPTED)
def test_accepted(accepted: Problem) -> None:
    assert not refuses(accepted)


@pytest.mark.parametrize("name", boards())
def test_a_placement_contains_one_of_every_smaller_size(name: str) -> None:
    """What allows the checks to count with the smallest allowed instances."""
    everything = placements(board(name))
    for outer in everything:
        inside = {placement.gpcs for placement in everything if placement.mask & ~outer.mask == 0}
        assert {gpcs for gpcs in board(name).sizes if gpcs <= outer.gpcs} <= inside


@pytest.mark.parametrize("name", boards())
def test_minimum_instances_fit_exactly_where_the_board_has_their_multiset(name: str) -> None:
    sizes = board(name).sizes
    known = multisets(board(name))
    for chosen in product(sizes, repeat=3):
        three = (tenant(f"t{index}", sizes=(gpcs,)) for index, gpcs in enumerate(chosen))
        fits = tuple(sorted(chosen, reverse=True)) in known
        assert refuses(problem(*three, gpu=name)) is not fits


@dataclass(frozen=True)
class Waiting:
    choices: tuple[tuple[int, int], ...]
    """GPCs and slots."""


@dataclass(frozen=True)
class Running:
    place: Placement
    left: int


State = Waiting | Running | None
"""Of a tenant's retraining; None: done, or never needed."""


def first_state(candidate: Problem, who: Tenant) -> State:
    for held in candidate.initial.instances if candidate.initial else ():
        if held.task == Task(who.name, Kind.RETRAINING):
            place = find_placement(candidate.board, held.start, held.gpcs)
            left = candidate.slots_left(who)
            assert place is not None
            assert left is not None
            return Running(place, left)
    return Waiting(tuple(lengths(who).items())) if lengths(who) else None


def next_state(state: State) -> State:
    if isinstance(state, Running):
        return Running(state.place, state.left - 1) if state.left > 1 else None
    return state


def slices_of(states: tuple[State, ...]) -> int | None:
    """The slices of all that runs; None where two would overlap."""
    mask = 0
    for state in states:
        if isinstance(state, Running):
            if state.place.mask & mask:
                return None
            mask |= state.place.mask
    return mask


def has_plan(candidate: Problem) -> bool:
    """Every plan tried, with whatever inference instances are allowed; for tiny windows only."""
    places = placements(candidate.board)
    allowed = [
        [
            placement
            for placement in places
            if placement.gpcs in who.capability and placement.gpcs >= who.min_gpcs
        ]
        for who in candidate.tenants
    ]

    @cache
    def room(mask: int, index: int) -> bool:
        return index == len(allowed) or any(
            room(mask | placement.mask, index + 1)
            for placement in allowed[index]
            if not placement.mask & mask
        )

    def options(state: State, slot: int) -> list[State]:
        choices = state.choices if isinstance(state, Waiting) else ()
        starts = [
            Running(place, length)
            for gpcs, length in choices
            for place in places
            if place.gpcs == gpcs and slot + length <= candidate.slots
        ]
        return [state, *starts]

    @cache
    def completes(slot: int, states: tuple[State, ...]) -> bool:
        if slot == candidate.slots:
            return all(state is None for state in states)
        return any(
            completes(slot + 1, tuple(next_state(retraining) for retraining in choice))
            for choice in product(*(options(state, slot) for state in states))
            if (mask := slices_of(choice)) is not None and room(mask, 0)
        )

    return completes(0, tuple(first_state(candidate, who) for who in candidate.tenants))


def one_or_two(sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [*combinations(sizes, 1), *combinations(sizes, 2)]


@pytest.mark.parametrize("gpu", [A30, A100])
def test_for_one_tenant_the_checks_are_complete(gpu: str) -> None:
    sizes = board(gpu).sizes
    outcomes = set()
    for capability, trained_on, minimum, slowest in product(
        one_or_two(sizes), one_or_two(sizes), (*sizes, 8), (2, 3)
    ):
        durations = {gpcs: slowest - index for index, gpcs in enumerate(trained_on)}
        alone = tenant("a", durations, minimum=minimum, sizes=capability)
        candidate = problem(alone, slots=2, gpu=gpu)
        assert refuses(candidate) is not has_plan(candidate)
        outcomes.add(refuses(candidate))
    assert outcomes == {True, False}


@st.composite
def tiny_problems(draw: st.DrawFn) -> Problem:
    gpu = board(draw(st.sampled_from([A30, A100])))
    slots = draw(st.integers(1, 4))
    some_sizes = st.sets(st.sampled_from(gpu.sizes), min_size=1).map(sorted).map(tuple)
    some_slots = st.dictionaries(
        st.sampled_from(gpu.sizes), st.integers(1, slots + 1), min_size=1, max_size=2
    )
    tenants = [
        tenant(
            name,
            draw(st.none() | some_slots),
            minimum=draw(st.integers(1, 3)),
            sizes=draw(some_sizes),
        )
        for name in "abc"[: draw(st.integers(1, 3))]
    ]
    initial = None
    if draw(st.booleans()):
        place = draw(st.sampled_from(placements(gpu)))
        initial = running((tenants[-1].name, place.start, place.gpcs, draw(st.integers(1, slots))))
    return problem(*tenants, slots=slots, gpu=gpu.name, initial=initial)


@settings(max_examples=amount(150, 400), deadline=None)
@given(tiny_problems())
def test_no_feasible_problem_is_refused(candidate: Problem) -> None:
    if refuses(candidate):
        assert not has_plan(candidate)
