import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import board_search
from support.amount import amount
from support.board_search import Item, State

from migrator.core.catalogue import Board, Place, boards
from migrator.core.errors import InputError
from migrator.gpu.drivers.base import Gpu, GpuInstance, Holder
from migrator.gpu.layout import (
    BlockedError,
    Layout,
    Op,
    Step,
    arrangements,
    clear_command,
    difference,
    plan_steps,
    removal_command,
)

A100, A30 = boards()["A100-40GB"], boards()["A30-24GB"]
WORKER = Holder(77, "worker")


def instance(place: Place, number: int = 1, *holders: Holder, half: bool = False) -> GpuInstance:
    return GpuInstance(place, number, None if half else f"MIG-{place}", holders)


def on_board(places: Collection[Place], in_use: Collection[Place] = ()) -> list[GpuInstance]:
    return [
        instance(place, number, *([WORKER] if place in in_use else []))
        for number, place in enumerate(sorted(places), 1)
    ]


def item(place: Place) -> Item:
    return place.profile, place.start


def items(places: Collection[Place]) -> State:
    return frozenset(map(item, places))


def walked(board: Board, state: State, steps: Sequence[Step], fixed: State = frozenset()) -> State:
    """The state after the steps; each must be an edge of the graph and touch nothing fixed."""
    ops = [step.op for step in steps]
    assert ops == sorted(ops, key=lambda op: op is Op.CREATE), "destroys come first"
    for step in steps:
        changed = frozenset([item(step.place)])
        assert (changed <= state) is (step.op is Op.DESTROY)
        then = state - changed if step.op is Op.DESTROY else state | changed
        assert then in board_search.neighbours(board)[state]
        state = then
        assert fixed <= state
    return state


SMALL = replace(
    A100, profiles=tuple(profile for profile in A100.profiles if profile.name != "1g.5gb+me")
)
"""Double memory too; media attributes are A30's part."""


@st.composite
def situations(draw: st.DrawFn) -> tuple[Board, State, State, State, Layout]:
    """A board, what is on it, what of that is foreign, what is used, and what is wanted."""
    board = draw(st.sampled_from([SMALL, A30, boards()["RTX-PRO-6000-Blackwell-96GB"]]))
    states = sorted_states(board)
    state = draw(st.sampled_from(states))
    foreign = frozenset(place for place in sorted(state) if draw(st.integers(0, 3)) == 0)
    in_use = frozenset(place for place in sorted(state - foreign) if draw(st.integers(0, 3)) == 0)
    base = draw(st.sampled_from([state, draw(st.sampled_from(states))]))
    target = draw(st.sampled_from([base, draw(st.sampled_from(states))]))
    places, counts = [], dict[str, int]()
    for name, start in sorted(target):
        kind = draw(st.integers(0, 2))
        if kind == 0:
            places.append(Place(start, name))
        elif kind == 1:
            counts[name] = counts.get(name, 0) + 1
    if draw(st.integers(0, 5)) == 0:
        extra = draw(st.sampled_from(board.profiles)).name
        counts[extra] = counts.get(extra, 0) + draw(st.integers(1, 3))
    return board, state, foreign, in_use, Layout(tuple(places), counts)


def sorted_states(board: Board) -> list[State]:
    return sorted(board_search.neighbours(board), key=lambda state: (len(state), sorted(state)))


@settings(max_examples=amount(150, 400), deadline=None)
@given(situations())
def test_random_boards_and_layouts_against_the_search(
    drawn: tuple[Board, State, State, State, Layout],
) -> None:
    board, state, foreign, in_use, layout = drawn
    here = {Place(start, name) for name, start in state}
    ours = {Place(start, name) for name, start in state - foreign}
    used = {Place(start, name) for name, start in in_use}
    wanted = (items(layout.places), layout.counts)
    if not board_search.is_possible(board, *wanted):
        with pytest.raises(InputError):
            plan_steps(board, on_board(here, used), ours, layout)
        return
    fewest = board_search.fewest_steps(board, state, foreign, in_use, *wanted)
    if fewest is None:
        with pytest.raises(BlockedError) as blocked:
            plan_steps(board, on_board(here, used), ours, layout)
        assert blocked.value.instances
        assert items([other.place for other in blocked.value.instances]) <= foreign | in_use
        return
    steps = plan_steps(board, on_board(here, used), ours, layout)
    reached = walked(board, state, steps, foreign | in_use)
    assert board_search.is_reached(reached, foreign, *wanted)
    assert len(steps) == fewest


def steps_of(
    board: Board,
    places: Sequence[Place] = (),
    counts: Mapping[str, int] | None = None,
    present: Sequence[GpuInstance] = (),
    ours: Collection[Place] = (),
) -> list[str]:
    return [
        str(step) for step in plan_steps(board, present, ours, Layout(tuple(places), counts or {}))
    ]


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"1g.5gb": 1}, ["create 1g.5gb at 6"]),
        ({"3g.20gb": 1}, ["create 3g.20gb at 4"]),
        ({"1g.10gb": 1}, ["create 1g.10gb at 6"]),
        ({"2g.10gb": 1}, ["create 2g.10gb at 0"]),
        (
            {"3g.20gb": 1, "1g.5gb": 2},
            ["create 1g.5gb at 2", "create 1g.5gb at 3", "create 3g.20gb at 4"],
        ),
        ({"4g.20gb": 1, "3g.20gb": 1}, ["create 4g.20gb at 0", "create 3g.20gb at 4"]),
    ],
    ids=str,
)
def test_where_there_is_a_choice_what_fragments_least(
    counts: Mapping[str, int], expected: list[str]
) -> None:
    assert steps_of(A100, counts=counts) == expected


def test_counts_take_what_is_there() -> None:
    present = on_board([Place(0, "1g.5gb"), Place(3, "1g.5gb")])
    both = [other.place for other in present]
    assert not steps_of(A100, counts={"1g.5gb": 2}, present=present, ours=both)
    assert steps_of(A100, counts={"1g.5gb": 1}, present=present, ours=both) == [
        "destroy 1g.5gb at 0"
    ]
    assert not steps_of(A100, counts={"1g.5gb": 1}, present=present, ours=both[:1])
    assert steps_of(A100, counts={"1g.5gb": 3}, present=present, ours=both[:1]) == [
        "create 1g.5gb at 6"
    ]


def test_an_instance_not_ours_is_as_good_where_it_is_wanted_and_else_stays() -> None:
    present = on_board([Place(4, "3g.20gb")])
    assert not steps_of(A100, [Place(4, "3g.20gb")], present=present)
    assert not steps_of(A100, present=present)
    assert steps_of(A100, [Place(0, "4g.20gb")], present=present) == ["create 4g.20gb at 0"]


def test_what_is_not_ours_and_in_the_way_is_named_with_the_operators_command() -> None:
    present = [instance(Place(4, "3g.20gb"), 2, WORKER)]
    with pytest.raises(
        BlockedError, match=re.escape("3g.20gb at 4 is in the way and is not ours: ask number 2")
    ) as blocked:
        plan_steps(
            A100,
            present,
            (),
            Layout((Place(0, "7g.40gb"),)),
            remedy=lambda other: f"ask number {other.number}",
        )
    assert blocked.value.instances == tuple(present)


def test_commands_to_remove_instances() -> None:
    gpu = Gpu(3, "GPU-3", "an A100", A100, "boot", "1", True, "mig")
    whole = GpuInstance(Place(4, "3g.20gb"), 2, "MIG-2")
    half = GpuInstance(Place(0, "1g.5gb"), 9, None)
    smi = "nvidia-smi mig -i 3"
    assert removal_command(gpu, whole) == f"{smi} -dci -gi 2 && {smi} -dgi -gi 2"
    assert removal_command(gpu, half) == f"{smi} -dgi -gi 9", "-dci would fail: there is none"
    assert removal_command(replace(gpu, driver="mps"), half) is None


def test_a_command_names_what_differs_from_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIGRATOR_STATE", str(tmp_path))
    gpu = Gpu(3, "GPU-0", "A100", A100, "boot", "550", True, "mig")
    clear = "migrator gpu clear --owner"
    assert clear_command(gpu, "night", tmp_path) == f"{clear} night --driver mig --gpu 3"
    there = f"--driver mps --gpu 3 --state '{tmp_path}/my state'"
    mps = replace(gpu, driver="mps")
    assert clear_command(mps, "my night", tmp_path / "my state") == f"{clear} 'my night' {there}"


def test_the_only_one_of_its_kind_blocks_without_overlapping() -> None:
    present = on_board([Place(0, "1g.5gb+me")])
    with pytest.raises(BlockedError, match=r"1g.5gb\+me at 0 is in the way"):
        steps_of(A100, [Place(3, "1g.5gb+me")], present=present)
    assert steps_of(A100, [Place(3, "1g.5gb+me")], present=present, ours=[Place(0, "1g.5gb+me")])
    assert not steps_of(A100, counts={"1g.5gb+me": 1}, present=present)


def test_a_half_made_instance_is_made_again_if_ours_and_blocks_if_not() -> None:
    place = Place(2, "2g.10gb")
    present = [instance(place, half=True)]
    assert steps_of(A100, [place], present=present, ours=[place]) == [
        "destroy 2g.10gb at 2",
        "create 2g.10gb at 2",
    ]
    with pytest.raises(BlockedError, match="has no compute instance and is not ours"):
        steps_of(A100, [place], present=present)
    assert steps_of(A100, counts={"2g.10gb": 1}, present=present) == ["create 2g.10gb at 0"]


@pytest.mark.parametrize(
    ("places", "counts", "message"),
    [
        ([(0, "4g.20gb"), (2, "2g.10gb")], {}, "4g.20gb at 0 and 2g.10gb at 2 overlap"),
        ([(0, "1g.5gb"), (0, "1g.5gb")], {}, "1g.5gb at 0 and 1g.5gb at 0 overlap"),
        ([(1, "3g.20gb")], {}, "3g.20gb cannot start at 1 on A100-40GB; it can at 0, 4"),
        ([(0, "3g.40gb")], {}, "A100-40GB has no MIG profile '3g.40gb'; it has 1g.5gb, "),
        ([], {"1g.5gb+me": 2}, r"2 instances of 1g.5gb\+me and A100-40GB has room for 1"),
        ([(0, "4g.20gb")], {"1g.5gb": 4}, "take 8 GPCs and A100-40GB has 7"),
        ([(0, "3g.20gb"), (4, "2g.10gb")], {"2g.10gb": 1}, "do not fit on A100-40GB together"),
        ([], {"1g.5gb": -1}, "-1 instances of 1g.5gb"),
    ],
    ids=str,
)
def test_a_layout_no_board_can_have(
    places: list[tuple[int, str]], counts: dict[str, int], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        steps_of(A100, [Place(*place) for place in places], counts)


def test_given_places_stay_and_counts_come_beside_them() -> None:
    layout = Layout((Place(4, "3g.20gb"),), {"2g.10gb": 1, "1g.5gb": 0})
    assert set(arrangements(boards()["A100-40GB"], layout)) == {
        (Place(4, "3g.20gb"), Place(0, "2g.10gb")),
        (Place(4, "3g.20gb"), Place(2, "2g.10gb")),
    }
    assert layout.amounts == {"3g.20gb": 1, "2g.10gb": 1}


def there(*places: Place, half_made: bool = False) -> list[GpuInstance]:
    return [instance(place, number, half=half_made) for number, place in enumerate(places)]


FOUR, THREE = Place(0, "4g.20gb"), Place(4, "3g.20gb")
ONES = tuple(Place(start, "1g.5gb") for start in (4, 5, 6))


@pytest.mark.parametrize(
    ("present", "wanted", "lines"),
    [
        (there(), Layout(), []),
        (there(FOUR, THREE), Layout((THREE, FOUR)), []),
        (there(FOUR, *ONES), Layout((FOUR,), {"1g.5gb": 3}), []),
        (there(*ONES), Layout((ONES[1],), {"1g.5gb": 2}), []),
        (there(FOUR), Layout((FOUR, THREE)), ["missing: 3g.20gb at 4"]),
        (there(FOUR), Layout((), {}), ["not in the layout: 4g.20gb at 0"]),
        (there(*ONES), Layout((), {"1g.5gb": 2}), ["not in the layout: 1g.5gb at 6"]),
        (there(*ONES), Layout((), {"1g.5gb": 5}), ["missing: 2 of 1g.5gb, anywhere"]),
        (there(), Layout((), {"1g.5gb": 0}), []),
        (there(FOUR, half_made=True), Layout((FOUR,)), ["without compute instance: 4g.20gb at 0"]),
        (there(FOUR, half_made=True), Layout(), ["not in the layout: 4g.20gb at 0"]),
    ],
)
def test_differences(present: list[GpuInstance], wanted: Layout, lines: list[str]) -> None:
    found_difference = difference(present, wanted)
    assert found_difference.lines() == lines
    assert bool(found_difference) == bool(lines)
