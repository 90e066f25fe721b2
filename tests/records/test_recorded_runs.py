"""Blocks: slots put together and taken apart again, plans that replace one another."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from support.scenarios import H200, serves, share, trains

from migrator.core.problem import Holding, Share
from migrator.records.rows import PlanRecord
from migrator.records.runs import Block, held_blocks, planned_blocks

HOLDINGS: tuple[Holding, ...] = (
    serves("photos", 0, 3),
    trains("photos", 0, 3),
    serves("cameras", 4, 2),
    share("photos", 25.0),
    share("photos", 25.0, number=1),
)


def known(holding: Holding) -> tuple[object, ...]:
    number = holding.number if isinstance(holding, Share) else None
    start = None if isinstance(holding, Share) else holding.start
    return start, str(holding.task), number


def at(blocks: tuple[Block, ...], slot: int) -> set[tuple[object, ...]]:
    present = [block for block in blocks if block["from"] <= slot < block["until"]]
    return {(block["start"], block["task"], block.get("number")) for block in present}


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sets(st.sampled_from(HOLDINGS)), min_size=1, max_size=12), st.integers(0, 3))
def test_blocks_hold_in_every_slot_what_the_slots_held(
    slots: list[set[Holding]], first: int
) -> None:
    blocks = held_blocks([tuple(slot) for slot in slots], H200, first)
    for number, held in enumerate(slots, first):
        assert at(blocks, number) == {known(block) for block in held}
    assert not at(blocks, first + len(slots))


def test_slots_after_one_another_are_one_block_and_the_last_goes_on() -> None:
    photos, cameras = serves("photos", 0, 3), serves("cameras", 4, 2)
    blocks = held_blocks([(photos,), (photos, cameras), (photos, cameras)], H200, 2, until=9)
    assert blocks == (
        {"start": 0, "gpcs": 3, "task": "photos/inference", "from": 2, "until": 9},
        {"start": 4, "gpcs": 2, "task": "cameras/inference", "from": 3, "until": 9},
    )


def test_a_share_has_no_place_and_the_size_of_as_many_sms() -> None:
    (block,) = held_blocks([(share("photos", 50.0),)], H200)
    assert (block["start"], block["gpcs"]) == (None, 0.5 * H200.compute_slices)


def test_a_plan_holds_until_the_next_one_begins() -> None:
    photos, cameras = (serves("photos", 0, 3),), (serves("cameras", 0, 3),)
    first = PlanRecord(0, 1.0, 0, "", blocks=held_blocks([photos], H200, 0, 10))
    second = PlanRecord(0, 5.0, 4, "", blocks=held_blocks([photos, cameras], H200, 4, 10))
    assert planned_blocks([second, first], 10) == (
        {"start": 0, "gpcs": 3, "task": "photos/inference", "from": 0, "until": 5},
        {"start": 0, "gpcs": 3, "task": "cameras/inference", "from": 5, "until": 10},
    )
