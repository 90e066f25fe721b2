import pickle

import numpy as np
import pytest

from migrator.advise.static_layouts import FixedLayout, fits, place_instances
from migrator.core.catalogue import board, find_placement
from migrator.core.errors import InputError
from migrator.core.problem import Kind
from migrator.policies.policy import Observation
from migrator.reproduce.experiment import serving_and_training

H200 = board("H200-141GB")


def _held(first: int) -> FixedLayout:
    return serving_and_training({"a": 1, "b": 1}, {"a": first, "b": 5 - first})


@pytest.mark.parametrize("first", [1, 2, 3, 4])
def test_held_instances_lie_on_legal_places(first: int) -> None:
    instances = place_instances(H200, _held(first).sizes)
    places = [find_placement(H200, instance.start, instance.gpcs) for instance in instances]
    masks = [place.mask for place in places if place is not None]
    assert len(masks) == 4
    assert sum(masks) == int(np.bitwise_or.reduce(masks)), "no two share a slice"
    training = {
        instance.task.tenant: instance.gpcs
        for instance in instances
        if instance.task and instance.task.kind is Kind.RETRAINING
    }
    assert training == {"a": first, "b": 5 - first}


def test_held_holds_the_same_in_every_window() -> None:
    held = _held(2)
    first = held.decide(Observation(H200, 1.0, 200, 0, (), ()))
    again = held.decide(Observation(H200, 1.0, 200, 0, (), first.slots[0]))
    assert first == again
    assert len(first.slots) == 1


def test_held_is_a_value() -> None:
    assert _held(2) == _held(2)
    assert hash(_held(2)) == hash(_held(2))
    assert _held(2) != _held(3)
    assert pickle.loads(pickle.dumps(_held(2))) == _held(2)


def test_what_does_not_fit_is_refused() -> None:
    assert fits(H200, (1, 3, 1, 2))
    assert not fits(H200, (3, 3, 1))
    with pytest.raises(InputError, match="never fit"):
        place_instances(H200, serving_and_training({"a": 1}, {"a": 3, "b": 3}).sizes)
