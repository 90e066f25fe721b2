import numpy as np
import pytest

from migrator.core.catalogue import board
from migrator.reproduce.best_allocation import best_splits, capability_pairs
from migrator.reproduce.sources import AZURE, INCEPTION, RESNET, MotivationSource, TracedModel

PAIRS = {"1-2": [[10.0, 20.0]], "2-1": [[20.0, 10.0]]}


def test_histogram_by_hand() -> None:
    first = np.array([5.0, 15.0, 4.0, 30.0])
    second = np.array([15.0, 5.0, 4.0, 30.0])
    choice = best_splits(PAIRS, (first, second))
    # 1-2 serves 20, 15, 8, 30; 2-1 serves 15, 20, 8, 30
    assert choice.served.tolist() == [[20, 15, 8, 30], [15, 20, 8, 30]]
    # the ties leave both the same room, so the first one counts
    assert choice.best == (0, 1, 0, 0)
    assert [choice.seconds(at) for at in (0, 1)] == [3, 1]
    assert choice.share(0) == pytest.approx(73 / 108)
    assert choice.share() == pytest.approx(78 / 108)


def test_a_tie_goes_to_the_split_with_room_for_the_fuller_model() -> None:
    choice = best_splits(PAIRS, (np.array([9.0]), np.array([1.0])))
    assert choice.best == (1,)


def test_a_second_may_be_laid_out_otherwise_than_the_next() -> None:
    pairs = {"3-4": [[10.0, 1.0], [1.0, 10.0]], "4-3": [[5.0, 5.0]]}
    choice = best_splits(pairs, (np.array([10.0, 0.0]), np.array([0.0, 10.0])))
    assert choice.served[0].tolist() == [10, 10]
    assert choice.best == (0, 0)


def test_splits_of_a_board_are_all_there_and_legal() -> None:
    source = MotivationSource(
        "two", (TracedModel(INCEPTION, AZURE, 0.1), TracedModel(RESNET, AZURE, 0.1))
    )
    scenario = source(0, 1)
    services = [tenant.service for tenant in scenario.tenants]
    pairs = capability_pairs(board("H200-141GB"), services)
    assert list(pairs) == ["1-6", "2-5", "3-4", "4-3", "5-2", "6-1"]
    rates = [service.capabilities_rps(scenario.board)[1] for service in services]
    # at batch 1 seven small instances answer most, however they are shared out
    most = [max(pair[model] for pair in pairs["2-5"]) for model in (0, 1)]
    assert most == [pytest.approx(2 * rates[0]), pytest.approx(5 * rates[1])]
    assert most in pairs["2-5"]
