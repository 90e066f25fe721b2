"""The model behind benchmarks/reaction.py against hand-computed cases."""

import numpy as np
import pytest

from benchmarks import reaction
from migrator.workload.workloads import WINDOW_S

RATE = 10.0


def board(cold_s: float = 1.0) -> reaction.Board:
    return reaction.board_of([RATE, RATE], [cold_s, cold_s])


def value(first: list[float], second: list[float], cold_s: float = 1.0) -> float:
    """What the best moves serve of known arrivals, from 3 and 4 instances on."""
    this = board(cold_s)
    served = [
        reaction.expected(np.array([counts]), levels)
        for counts, levels in zip((first, second), this.levels, strict=True)
    ]
    return float(reaction.best_moves(this, served[0], served[1])[1][this.start])


def test_a_burst_that_is_known_ahead_finds_warm_instances() -> None:
    assert value([0, 60], [0, 0]) == pytest.approx(60), "three move in the silent slot"


def test_a_burst_now_is_served_by_what_is_warm() -> None:
    assert value([60], [0]) == pytest.approx(30)
    assert value([60, 60], [0, 0]) == pytest.approx(30 + 60), "those that move are cold for a slot"
    assert value([60, 60], [0, 0], cold_s=1.5) == pytest.approx(30 + 45)


def test_no_table_beats_known_arrivals_and_full_knowledge_equals_them() -> None:
    random = np.random.default_rng(1)
    counts = [np.where(random.random(20 + WINDOW_S) < 0.3, 60.0, 0.0) for _ in range(2)]
    came = counts[0][20:], counts[1][20:]
    this = board()
    truth = [reaction.expected(came[tenant][None], this.levels[tenant]) for tenant in range(2)]
    moves, values = reaction.best_moves(this, truth[0], truth[1])
    best = values[this.start]
    assert reaction.goodput(this, came, list(moves)) == pytest.approx(best, abs=0.01)
    seen = [reaction.classes(count, [20], 2) for count in counts]
    table = reaction.best_table(this, (came[0][None], came[1][None]), (seen[0], seen[1]))
    by_table = [table[:, seen[0][0, t], seen[1][0, t]] for t in range(WINDOW_S)]
    assert 0.5 * best < reaction.goodput(this, came, by_table) < best
