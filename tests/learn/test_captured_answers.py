"""Answers replayed for batches of every size; the capture itself needs a GPU."""

import pytest
import torch
from torch import Tensor, nn

from migrator.learn.captured import Graph
from migrator.learn.captured_answers import CapturedAnswers, Forward, halve, sizes


def replayed(forward: Forward, inputs: Tensor) -> Graph:
    """As a GPU would: the same memory is read and written by every replay."""
    given, said = inputs.clone(), forward(inputs).clone()

    def replay() -> None:
        said.copy_(forward(given))

    return Graph(replay, given, torch.empty(0), said)


@pytest.mark.parametrize(
    ("batch", "expected"),
    [(1, (1,)), (2, (1, 2)), (4, (1, 2, 4)), (6, (1, 2, 4, 6)), (3, (1, 2, 3))],
)
def test_sizes_double_up_to_the_batch(batch: int, expected: tuple[int, ...]) -> None:
    assert sizes(batch) == expected


def test_every_size_gets_the_answers_of_its_own_rows() -> None:
    answers = CapturedAnswers(lambda given: 2.0 * given, torch.zeros(1, 3), 6, replayed)
    for rows in (1, 2, 3, 5, 6, 4, 1):
        inputs = torch.rand(rows, 3)
        assert answers.takes(inputs)
        assert torch.equal(answers.answer(inputs), 2.0 * inputs)


def test_what_it_was_not_captured_for_is_left_to_others() -> None:
    answers = CapturedAnswers(lambda given: given, torch.zeros(1, 3), 2, replayed)
    assert not answers.takes(torch.zeros(3, 3)), "too many"
    assert not answers.takes(torch.zeros(0, 3)), "none"
    assert not answers.takes(torch.zeros(1, 4)), "of another shape"
    assert not answers.takes(torch.zeros(1, 3, dtype=torch.int32)), "of another type"


def test_what_does_not_capture_says_so() -> None:
    with pytest.raises(RuntimeError, match="do not capture"):
        CapturedAnswers(lambda given: given, torch.zeros(1, 3), 2, lambda *_: None)


def test_a_halved_network_takes_what_it_is_given_and_loads_what_was_saved() -> None:
    network = nn.Linear(3, 2)
    saved = {name: each.clone() for name, each in network.state_dict().items()}
    halve(network)
    assert network(torch.rand(4, 3)).dtype is torch.bfloat16
    network.load_state_dict(saved)
    assert network.weight.dtype is torch.bfloat16
    assert torch.allclose(network.weight.float(), saved["weight"], atol=0.01)
