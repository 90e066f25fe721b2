"""How much of the oracle a rule without knowledge of the future can reach:
python -m benchmarks.reaction [--load SHARE] [--windows N] [--pairs KIND+KIND,...]
[--overhead-s SECONDS]

A model of the GPU in benchmarks/replanning.py: seven 1g instances, a slot of one second, requests
beyond the capability are lost, and an instance that changes its tenant serves nothing until it
is warm. The best sequence of moves for known arrivals is exact (the oracle). Beside it:

- replanning every second on the forecast of `migrator`, with the true arrivals of the next 0, 1, 2
  and 3 s in place of the forecast;
- the best fixed table from what a rule can see (the last second and the mean of the last ten
  seconds of both tenants, in classes) to a move. The table is computed from the tested seconds
  themselves, so it knows their statistics, which no rule can.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.replanning import chosen, data_for
from benchmarks.spread_windows import LOAD, SpreadWindow, pair_name
from benchmarks.traces import Pair
from migrator.core.errors import InputError
from migrator.forecast.nowcast import Nowcast
from migrator.workload.workloads import WINDOW_S

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

INSTANCES = 7
HORIZON = 30
KNOWN_S = (0, 1, 2, 3)
CLASSES = (2, 4)
"""Numbers of classes of busy seconds; silence is one more."""
DISCOUNT, ROUNDS = 0.97, 200
MOVES = range(1 - INSTANCES, INSTANCES)
"""Instances that the first tenant gets from the second; negative: the other way."""
NO_MOVE = INSTANCES - 1


@dataclass(frozen=True)
class Board:
    """States (warm and new instances of both tenants) and what every move does."""

    after: Ints
    """[state, move]: the next state; -1 for a move that is not possible"""
    serving: tuple[Ints, Ints]
    """Per tenant [state, move]: which of its levels serves in this slot"""
    levels: tuple[Floats, Floats]
    """Per tenant, requests per slot"""
    start: int
    """Instances divided evenly"""


def board_of(rates: Sequence[float], cold_s: Sequence[float]) -> Board:
    """The board for 1g instances with these rates that are cold for these seconds."""
    states = [
        (first - new_first, second - new_second, new_first, new_second)
        for first in range(1, INSTANCES)
        for second in (INSTANCES - first,)
        for new_first in range(first + 1)
        for new_second in range(second + 1)
    ]
    place = {state: at for at, state in enumerate(states)}
    after = np.full((len(states), len(MOVES)), -1, np.intp)
    served = np.zeros((2, *after.shape))
    for at, (*warm, new_first, new_second) in enumerate(states):
        for number, move in enumerate(MOVES):
            held = [list(pair) for pair in zip(warm, (new_first, new_second), strict=True)]
            giver = held[1] if move > 0 else held[0]
            if abs(move) >= sum(giver):
                continue
            new = min(giver[1], abs(move))  # those that do not serve yet are given away first
            giver[0], giver[1] = giver[0] - (abs(move) - new), giver[1] - new
            added = (max(move, 0), max(-move, 0))
            for tenant in range(2):
                first_s = max(0.0, 1 - cold_s[tenant])
                second_s = min(1.0, max(0.0, 2 - cold_s[tenant]))
                busy = held[tenant][0] + second_s * held[tenant][1] + first_s * added[tenant]
                served[tenant, at, number] = rates[tenant] * busy
            after[at, number] = place[(sum(held[0]), sum(held[1]), *added)]
    distinct = [np.unique(rates, return_inverse=True) for rates in served]
    serving = [index.reshape(after.shape) for _, index in distinct]
    even = place[(INSTANCES // 2, INSTANCES - INSTANCES // 2, 0, 0)]
    return Board(after, (serving[0], serving[1]), (distinct[0][0], distinct[1][0]), even)


def expected(scenarios: Floats, levels: Floats) -> Floats:
    """[slot, level]: expected requests served, over the rows of the scenarios."""
    served: Floats = np.minimum(scenarios[:, :, None], levels).mean(axis=0)
    return served


def best_moves(board: Board, first: Floats, second: Floats) -> tuple[Ints, Floats]:
    """The best move in every slot and state, and the value of every state, for what is expected."""
    possible, after = board.after >= 0, np.maximum(board.after, 0)
    value = np.zeros(len(after))
    moves = np.empty((len(first), len(after)), np.intp)
    for slot in reversed(range(len(first))):
        worth = first[slot][board.serving[0]] + second[slot][board.serving[1]] + value[after]
        worth[:, NO_MOVE] += 1e-6
        worth[~possible] = -np.inf
        moves[slot] = worth.argmax(axis=1)
        value = worth.max(axis=1)
    return moves, value


def goodput(board: Board, arrivals: tuple[Floats, Floats], moves: Sequence[Ints]) -> float:
    """Requests served when each slot's move of the state is made."""
    state, total = board.start, 0.0
    for slot, of_state in enumerate(moves):
        move = of_state[state]
        for tenant in range(2):
            level = board.levels[tenant][board.serving[tenant][state, move]]
            total += min(arrivals[tenant][slot], level)
        state = int(board.after[state, move])
    return total


def forecasts(history: Floats, begin: int) -> list[Floats]:
    """Scenarios of the next slots at every slot of the window."""
    nowcast = Nowcast()
    return [
        nowcast.ahead(history[: begin + slot], min(HORIZON, WINDOW_S - slot), WINDOW_S)
        for slot in range(WINDOW_S)
    ]


def replanned(
    board: Board,
    arrivals: tuple[Floats, Floats],
    ahead: tuple[list[Floats], list[Floats]],
    known_s: int,
) -> list[Ints]:
    """The moves of a replan in every slot that knows the next `known_s` slots."""
    moves = []
    for slot in range(WINDOW_S):
        served = []
        for tenant in range(2):
            rows = ahead[tenant][slot].copy()
            rows[:, :known_s] = arrivals[tenant][slot : slot + min(known_s, rows.shape[1])]
            served.append(expected(rows, board.levels[tenant]))
        moves.append(best_moves(board, served[0], served[1])[0][0])
    return moves


def classes(counts: Floats, begins: Sequence[int], number: int) -> Ints:
    """[window, slot]: the class of what a rule sees before the slot."""
    slots = np.array(begins)[:, None] + np.arange(WINDOW_S + 1)
    sums = np.concatenate([[0.0], counts.cumsum()])
    parts = []
    for span in (1, 10):
        mean = (sums[slots] - sums[slots - span]) / span
        busy = mean[mean > 0]
        edges = np.quantile(busy, np.arange(number) / number) if len(busy) else np.zeros(1)
        parts.append(np.searchsorted(edges, mean, side="right"))
    joint = parts[0] * (number + 1) + parts[1]
    numbers: Ints = np.unique(joint, return_inverse=True)[1].reshape(joint.shape)
    return numbers


def best_table(
    board: Board, arrivals: tuple[Floats, Floats], seen: tuple[Ints, Ints]
) -> NDArray[np.intp]:
    """[state, class, class]: the best move if classes follow each other as in these windows."""
    follow, served = [], []
    for tenant in range(2):
        now, then = seen[tenant][:, :-1].ravel(), seen[tenant][:, 1:].ravel()
        number = int(seen[tenant].max()) + 1
        counts = np.zeros((number, number))
        np.add.at(counts, (now, then), 1.0)
        follow.append(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0))
        sums = np.zeros((number, len(board.levels[tenant])))
        np.add.at(sums, now, np.minimum(arrivals[tenant].ravel()[:, None], board.levels[tenant]))
        served.append(sums / np.maximum(np.bincount(now, minlength=number), 1)[:, None])
    possible, after = board.after >= 0, np.maximum(board.after, 0)
    gain = served[0].T[board.serving[0]][:, :, :, None] + served[1].T[board.serving[1]][:, :, None]
    gain[:, NO_MOVE] += 1e-6
    gain[~possible] = -np.inf
    value = np.zeros((len(after), len(follow[0]), len(follow[1])))
    worth = gain
    for _ in range(ROUNDS):
        later = follow[0] @ value @ follow[1].T
        worth = gain + DISCOUNT * later[after]
        value = worth.max(axis=1)
        value -= value.min()  # only differences decide
    table: NDArray[np.intp] = worth.argmax(axis=1)
    return table


def shares(
    pair: Pair, load: float, windows: int, data: Path, overhead_s: float | None = None
) -> list[float]:
    """Goodput over the oracle's: replanned for each of KNOWN_S, a table for each of CLASSES.

    `overhead_s`: until an instance serves its new tenant; None: the profile's.
    """
    scenarios = [SpreadWindow(pair, n, windows, data, load)(0, 1) for n in range(windows)]
    tenants = scenarios[0].tenants
    board = board_of(
        [tenant.service.capabilities_rps(scenarios[0].board)[1] for tenant in tenants],
        [
            tenant.service.profile.overhead.total_s(mig=True, prepared=True)
            if overhead_s is None
            else overhead_s
            for tenant in tenants
        ],
    )
    counts = [np.asarray(tenant.trace.counts, float) for tenant in tenants]
    begins = [[scenario.tenants[tenant].offset_s for scenario in scenarios] for tenant in range(2)]
    came = [
        np.array([counts[tenant][begin : begin + WINDOW_S] for begin in begins[tenant]])
        for tenant in range(2)
    ]
    tables = []
    for number in CLASSES:
        seen = [classes(counts[tenant], begins[tenant], number) for tenant in range(2)]
        tables.append((best_table(board, (came[0], came[1]), (seen[0], seen[1])), seen))
    oracle, totals = 0.0, np.zeros(len(KNOWN_S) + len(CLASSES))
    for n in range(windows):
        arrivals = came[0][n], came[1][n]
        truth = [expected(arrivals[tenant][None], board.levels[tenant]) for tenant in range(2)]
        oracle += float(best_moves(board, truth[0], truth[1])[1][board.start])
        ahead = [forecasts(counts[tenant], begins[tenant][n]) for tenant in range(2)]
        plans = [replanned(board, arrivals, (ahead[0], ahead[1]), seconds) for seconds in KNOWN_S]
        for table, seen in tables:
            plans.append([table[:, seen[0][n, t], seen[1][n, t]] for t in range(WINDOW_S)])
        totals += [goodput(board, arrivals, plan) for plan in plans]
    return list(totals / oracle)


def main() -> int:
    """Print a row for every pair."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--load", type=float, default=LOAD, help="part of the GPU inference needs")
    parser.add_argument("--windows", type=int, default=10, help="per pair, spread over the traces")
    parser.add_argument("--pairs", metavar="KIND+KIND,...", help="default: all")
    parser.add_argument(
        "--overhead-s", type=float, help="until an instance serves its new tenant; default: 1.1"
    )
    options = parser.parse_args()
    try:
        pairs = chosen(options.pairs)
        data = data_for(pairs)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    columns = [f"knows {seconds} s" for seconds in KNOWN_S]
    tables = [f"table of {(traffic_class + 1) ** 2} classes" for traffic_class in CLASSES]
    print(
        f"| traces | {' | '.join([*columns, *tables])} |\n|{'---|' * (1 + len(columns + tables))}"
    )
    for pair in pairs:
        mix = shares(pair, options.load, options.windows, data, options.overhead_s)
        print(f"| {pair_name(pair)} | {' | '.join(f'{share:.1%}' for share in mix)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
