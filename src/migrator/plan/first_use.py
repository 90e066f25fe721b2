"""The first use of the planners on a machine: compile all kernels, on two cores where there are.

A tiny problem is planned, which compiles every kernel that the charge needs. Meanwhile a second
process walks the same steps from the last to the first and leaves its kernels in the cache on
disk. Each of the two loads what the other has compiled; they meet somewhere in the middle.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np

from migrator.core.catalogue import board
from migrator.core.problem import Charge, Problem, Tenant
from migrator.plan.exact import prices as exact_prices
from migrator.plan.exact.labels import LabelSearch, best_path
from migrator.plan.exact.space import build_space, occupied_by, running_of
from migrator.plan.exact.tables import NEVER, build_tables
from migrator.plan.kernels import has_cache, is_compiled
from migrator.plan.survivors import prices
from migrator.plan.survivors.fixed_schedule import around_of
from migrator.plan.survivors.options import arrivals_of, menus_of
from migrator.plan.survivors.search import ShareSearch
from migrator.plan.survivors.serving import build_serving, build_shares
from migrator.plan.survivors.state_search import StateSearch

ENOUGH = 1e8
"""Work that a pass over the tiny problem may take: more than it needs."""


def tiny_problem(charge: Charge) -> Problem:
    """The smallest problem that needs all kernels of the charge."""
    tenant = Tenant("tiny", ((1.0, 2.0),), {1: 1.0}, 0.5, 0.6, {1: 1}, 1.0, 1)
    return Problem(board("A30-24GB"), 1.0, 2, charge, (tenant,))


def start_second_process(charge: Charge) -> subprocess.Popen[bytes] | None:
    """Begin to compile from the last step; None where that is of no use."""
    if is_compiled(charge) or not has_cache() or len(os.sched_getaffinity(0)) < 2:
        return None
    try:
        return subprocess.Popen(
            [sys.executable, "-m", __name__, charge],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except OSError:  # no memory or no interpreter: this process compiles alone
        return None


def compile_backwards(charge: Charge) -> None:
    """Compile the kernels of the charge, those that its plans need last first."""
    problem = tiny_problem(charge)
    if charge is Charge.SURVIVORS:
        _compile_survivors(problem)
    _compile_exact(problem)


def _compile_survivors(problem: Problem) -> None:
    space = build_space(problem)
    tables = build_tables(problem, space)
    menus, arrivals = menus_of(problem, space), arrivals_of(problem)
    serving, shares = build_serving(problem, space, tables), build_shares(problem, space)
    search, started = ShareSearch(problem, space, menus, arrivals), running_of(problem, space)
    sizes = len(space.geometry.sizes)
    none = np.zeros((1, problem.slots, int(serving.patterns[0])))
    free = prices.Prices(none, np.zeros((2, problem.slots, sizes)), np.inf)
    known = serving, shares, free, menus, arrivals, search.costs, started
    StateSearch(problem, space, *known).run(search.before(), NEVER, 8, ENOUGH, _in_time)
    first = exact_prices.first_prices(space, tables)
    occupied = occupied_by(space, started, problem.slots)
    prices.find_prices(serving, shares, first, occupied, space.most_waiting, 2, NEVER, _in_time)
    search.run(around_of(problem, space, arrivals, started), 2, _in_time)


def _compile_exact(problem: Problem) -> None:
    space = build_space(problem)
    tables, started = build_tables(problem, space), running_of(problem, space)
    best_path(space, tables, started)
    rows = len(space.patterns[0]) + exact_prices.first_prices(space, tables).shape[1]
    free = exact_prices.Prices(np.zeros((rows, problem.slots)), np.inf)
    bounds = exact_prices.tabulate_bounds(space, tables, free)
    LabelSearch(space, tables, bounds, started).run(NEVER, 8, ENOUGH, _in_time)
    exact_prices.find_prices(space, tables, occupied_by(space, started, problem.slots))


def _in_time() -> bool:
    return False


if __name__ == "__main__":
    compile_backwards(Charge(sys.argv[1]))
