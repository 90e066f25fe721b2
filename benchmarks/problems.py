"""Seeded random planning problems, as a data centre might pose them.

Everything is drawn per second and then cut into slots, so that a seed means much the same
window with slots of another length. What is drawn does not depend on the overhead asked for:
the same seed with another `overhead_s` is otherwise the same problem.
"""

from __future__ import annotations

import math
import string
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from migrator.core.catalogue import Board
from migrator.core.catalogue import board as board_called
from migrator.core.errors import InfeasibleError
from migrator.core.problem import Charge, Problem, RetrainingConfiguration, Tenant
from migrator.planning.feasibility import require_feasible

OVERHEADS_S = (0.0, 0.2, 0.5, 1.0, 2.0, 3.0, 6.0)

_ATTEMPTS = 100
"""How often a problem is drawn again before its seed counts as impossible."""

_Floats = npt.NDArray[np.float64]


def random_window(
    seed: int,
    *,
    tenants: int,
    slots: int = 200,
    slot_s: float = 1.0,
    overhead_s: float | None = None,
    board: str = "A100-40GB",
    scenarios: int = 1,
    charge: Charge = Charge.PAPER,
    load: float | None = None,
) -> Problem:
    """The problem of this seed: every tenant retrains.

    Overheads and load (share of the board's capability) are drawn unless given.
    """
    for attempt in range(_ATTEMPTS):
        rng = np.random.default_rng([seed, attempt])
        drawn = _tenants(
            rng, board_called(board), tenants, slots, slot_s, scenarios, overhead_s, load
        )
        problem = Problem(board_called(board), slot_s, slots, charge, drawn)
        try:
            require_feasible(problem)
        except InfeasibleError:
            continue
        return problem
    raise InfeasibleError(
        f"seed {seed}: {tenants} tenants in {slots} slots on {board} were infeasible in "
        f"{_ATTEMPTS} draws; use more slots or fewer tenants"
    )


def _tenants(
    rng: np.random.Generator,
    board: Board,
    tenants: int,
    slots: int,
    slot_s: float,
    scenarios: int,
    overhead_s: float | None,
    load: float | None,
) -> tuple[Tenant, ...]:
    minima = _minima(rng, board, tenants)
    longest = _longest_retraining(board, minima) * slots
    drawn_load = rng.uniform(0.25, 1.5)  # of the whole board: light to overload
    load = drawn_load if load is None else load
    drawn = []
    for letter, least in zip(string.ascii_lowercase, minima, strict=False):
        per_second = _capability(rng, board)
        overhead = float(rng.choice(OVERHEADS_S))
        mean = load * rng.uniform(0.6, 1.4) * per_second[1] * board.compute_slices / tenants
        shape = str(rng.choice(list(SHAPES)))
        pre = float(rng.uniform(0.4, 0.8))
        drawn.append(
            Tenant(
                name=f"{letter}-{shape}",
                received=_received(rng, shape, mean, slots, slot_s, scenarios),
                capability={gpcs: round(rate * slot_s, 2) for gpcs, rate in per_second.items()},
                accuracy_pre=round(pre, 3),
                configurations=(
                    RetrainingConfiguration(
                        accuracy=round(min(1.0, pre + float(rng.uniform(0.02, 0.3))), 3),
                        slots=_retraining_slots(rng, board, longest),
                    ),
                ),
                overhead_s=overhead if overhead_s is None else overhead_s,
                min_gpcs=least,
            )
        )
    return tuple(drawn)


def _minima(rng: np.random.Generator, board: Board, tenants: int) -> list[int]:
    """Each tenant's min_gpcs: mostly 1; 2 only while two GPCs stay free for retraining."""
    spare = board.compute_slices - tenants
    minima = []
    for wish in rng.choice([1, 2], p=[0.85, 0.15], size=tenants):
        least = int(wish) if spare > 2 else 1
        spare -= least - 1
        minima.append(least)
    return minima


def _longest_retraining(board: Board, minima: list[int]) -> float:
    """How much of the window a retraining on one GPC may take so that all can be completed.

    One GPC after the other on what the minima leave free always works; where everybody has
    two GPCs to retrain on at the same time, one GPC need not be enough.
    """
    spare = board.compute_slices - sum(minima)
    if spare >= 2 * len(minima):
        return 1.2
    return 0.9 / math.ceil(len(minima) / spare)


def _retraining_slots(rng: np.random.Generator, board: Board, longest: float) -> dict[int, int]:
    """Falling with the size; not on the whole board, where nobody could serve beside it."""
    on_one = rng.uniform(0.3, 1.0) * longest
    speedup = rng.uniform(0.6, 0.98)
    sizes = np.array(board.sizes[:-1])
    noise = rng.uniform(0.95, 1.0, len(sizes))
    lengths = np.minimum.accumulate(on_one * noise / sizes**speedup)
    return {int(k): max(1, int(length)) for k, length in zip(sizes, lengths, strict=True)}


def _capability(rng: np.random.Generator, board: Board) -> dict[int, float]:
    """Requests per second by size: concave but for the noise of a measurement, never falling."""
    sizes = np.array(board.sizes)
    on_one = rng.uniform(20.0, 200.0)
    noise = rng.normal(1.0, 0.03, len(sizes))
    rates = np.maximum.accumulate(on_one * sizes ** rng.uniform(0.6, 0.98) * noise)
    return {int(k): float(rate) for k, rate in zip(sizes, rates, strict=True)}


def _received(
    rng: np.random.Generator, shape: str, mean: float, slots: int, slot_s: float, scenarios: int
) -> tuple[tuple[float, ...], ...]:
    """Scenarios of requests per slot; several differ in level and in their Poisson noise."""
    rates = SHAPES[shape](rng, slots, slot_s)
    expected = rates / rates.mean() * mean * slot_s
    if scenarios == 1 and rng.random() < 0.5:
        return (tuple(np.round(expected, 2).tolist()),)
    levels = rng.lognormal(0.0, 0.15, scenarios) if scenarios > 1 else np.ones(1)
    return tuple(tuple(rng.poisson(level * expected).astype(float).tolist()) for level in levels)


def _wave(rng: np.random.Generator, slots: int, slot_s: float) -> _Floats:
    turns = np.arange(slots) * slot_s / rng.uniform(30.0, 200.0) + rng.random()
    return np.asarray(1.0 + rng.uniform(0.3, 0.9) * np.sin(2 * np.pi * turns))


def _bursts(rng: np.random.Generator, slots: int, slot_s: float) -> _Floats:
    rates = np.ones(slots)
    for _ in range(int(rng.integers(2, 7))):
        start = int(rng.integers(slots))
        rates[start : start + math.ceil(rng.uniform(3.0, 25.0) / slot_s)] += rng.uniform(0.5, 3.0)
    return rates


def _autocorrelated(rng: np.random.Generator, slots: int, slot_s: float) -> _Floats:
    """Log-normal, with a memory of 5 to 60 seconds."""
    keep = math.exp(-slot_s / rng.uniform(5.0, 60.0))
    shocks = rng.normal(size=slots)
    level = shocks.copy()
    for slot in range(1, slots):
        level[slot] = keep * level[slot - 1] + math.sqrt(1 - keep**2) * shocks[slot]
    return np.asarray(np.exp(rng.uniform(0.3, 0.8) * level))


def _on_off(rng: np.random.Generator, slots: int, slot_s: float) -> _Floats:
    low, mean_s = rng.uniform(0.05, 0.4), rng.uniform(8.0, 40.0)
    rates, slot, on = np.empty(slots), 0, rng.random() < 0.5
    while slot < slots:
        length = math.ceil(rng.exponential(mean_s) / slot_s)
        rates[slot : slot + length] = 1.0 if on else low
        slot, on = slot + length, not on
    return rates


def _flat(_rng: np.random.Generator, slots: int, _slot_s: float) -> _Floats:
    return np.ones(slots)


SHAPES: dict[str, Callable[[np.random.Generator, int, float], _Floats]] = {
    "wave": _wave,
    "bursts": _bursts,
    "autocorrelated": _autocorrelated,
    "on_off": _on_off,
    "flat": _flat,
}
"""Arrival rates over a window by name; half of the windows get Poisson noise on top."""
