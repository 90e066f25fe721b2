"""Peers whose idle slices are lent decide as they do without."""

from __future__ import annotations

import pickle

import pytest

from benchmarks.live_cells import Cell
from benchmarks.live_grid import scenario_of
from migrator.forecast.selection import forecaster
from migrator.policies.policy import lends
from migrator.policies.registry import policy
from migrator.simulation.run import run


@pytest.mark.parametrize(
    ("path", "peer"),
    [
        ("benchmarks.gpu.lending:EqualMig", "equal-mig"),
        ("benchmarks.gpu.lending:ParisReconfiguring", "paris-reconfiguring"),
    ],
)
def test_a_peer_with_lending_answers_more_and_decides_alike(path: str, peer: str) -> None:
    scenario = scenario_of(Cell("two", "bursty", 1.1, 30), 0)
    lending, own = pickle.loads(pickle.dumps(policy(path))), policy(peer)
    assert lends(lending, scenario.board)
    assert not lends(own, scenario.board)
    outcomes = [run(scenario, chosen, forecaster("last-mean")) for chosen in (lending, own)]
    slots = [[window.slots for window in outcome.windows] for outcome in outcomes]
    assert slots[0] == slots[1]
    received, other = (outcome.tally for outcome in outcomes)
    assert received.goodput > 1.02 * other.goodput
