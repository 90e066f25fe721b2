"""The first use of the planners on a machine: compile all kernels, on two cores where there are.

The kernels of a charge are divided into two halves that take about equally long. A second process
compiles one of them and leaves it in the cache on disk; this one compiles the other meanwhile.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def without_collection() -> Iterator[None]:
    """Without garbage collection: compiling leaves little garbage and many objects to look at."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def start_second_process(charge: Charge) -> subprocess.Popen[bytes] | None:
    """Begin to compile the second half elsewhere; None where that is of no use."""
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


def compile_first_half(charge: Charge) -> None:
    """Compile the kernels that plans of the charge need first."""
    problem = tiny_problem(charge)
    _compile_prices(problem)
    if charge is Charge.SURVIVORS:
        _compile_labels(problem)
        _compile_shares(problem)


def compile_second_half(charge: Charge) -> None:
    """Compile all other kernels of the charge."""
    problem = tiny_problem(charge)
    if charge is Charge.SURVIVORS:
        _compile_states(problem)
    else:
        _compile_labels(problem)


def _compile_prices(problem: Problem) -> None:
    space = build_space(problem)
    tables, started = build_tables(problem, space), running_of(problem, space)
    occupied = occupied_by(space, started, problem.slots)
    found = exact_prices.find_prices(space, tables, occupied, _always)
    exact_prices.tabulate_bounds(space, tables, found)


def _compile_labels(problem: Problem) -> None:
    space = build_space(problem)
    tables, started = build_tables(problem, space), running_of(problem, space)
    best_path(space, tables, started)
    bounds = exact_prices.empty_bounds(space, tables)
    LabelSearch(space, tables, bounds, started).run(NEVER, 8, ENOUGH, _never)


def _compile_shares(problem: Problem) -> None:
    space, arrivals = build_space(problem), arrivals_of(problem)
    around = around_of(problem, space, arrivals, running_of(problem, space))
    ShareSearch(problem, space, menus_of(problem, space), arrivals).run(around, 2, _never)


def _compile_states(problem: Problem) -> None:
    space = build_space(problem)
    tables = build_tables(problem, space)
    menus, arrivals = menus_of(problem, space), arrivals_of(problem)
    serving, shares = build_serving(problem, space, tables), build_shares(problem, space)
    search, started = ShareSearch(problem, space, menus, arrivals), running_of(problem, space)
    tenants, slots, sizes = len(problem.tenants), problem.slots, len(space.geometry.sizes)
    none = np.zeros((tenants, slots, int(serving.patterns[0])))
    free = prices.Prices(none, np.zeros((2, slots, sizes)), np.inf)
    known = serving, shares, free, menus, arrivals, search.costs, started
    StateSearch(problem, space, *known).run(search.before(), NEVER, 8, ENOUGH, _never)
    first = exact_prices.first_prices(space, tables)
    occupied = occupied_by(space, started, slots)
    prices.find_prices(serving, shares, first, occupied, space.most_waiting, 2, NEVER, _never)


def _never() -> bool:
    return False


def _always() -> bool:
    return True


if __name__ == "__main__":
    with without_collection():
        compile_second_half(Charge(sys.argv[1]))
