"""Profiles: measured speed of a model on a board, packaged for the built-in models.

profiles.json states what was measured and what was assumed. Not to be confused with NVIDIA's MIG
profiles (3g.20gb), which are in the catalogue.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

from migrator.core.catalogue import Board
from migrator.core.registry import pick

_PLAIN = (
    *("model", "board", "training_ratio", "interference", "contention", "provenance"),
    *("training_memory_mib", "retraining_held_mib", "estimate_held_mib"),
)
"""Keys of profiles.json whose values are taken as they are."""


@dataclass(frozen=True)
class _PackagedModel:
    """A model and its profiles by board."""

    name: str
    profiles: dict[str, Profile] = field(default_factory=dict)


@cache
def profiles() -> dict[tuple[str, str], Profile]:
    """Every packaged profile by model and board."""
    text = files("migrator.core").joinpath("profiles.json").read_text(encoding="utf-8")
    packaged = [profile_of(entry) for entry in json.loads(text)["profiles"]]
    return {(profile.model, profile.board): profile for profile in packaged}


def profile(model: str, board: str) -> Profile:
    """The model's packaged profile for a board; InputError suggests the nearest models.

    If the model was not measured on that board, its profile of another board is used.
    """
    models: dict[str, _PackagedModel] = {}
    for (name, measured_on), packaged in profiles().items():
        models.setdefault(name, _PackagedModel(name)).profiles[measured_on] = packaged
    of_board = pick("model", model, models).profiles
    return of_board[board] if board in of_board else on_board(next(iter(of_board.values())), board)


def on_board(profile: Profile, board: str) -> Profile:
    """The profile applied to another board by its number of SMs; noted in its provenance."""
    if profile.board == board:
        return profile
    provenance = f"{profile.provenance}; used on {board} by its number of SMs, an approximation"
    return replace(profile, board=board, provenance=provenance)


def profile_of(entry: Mapping[str, Any]) -> Profile:
    """The profile in an entry with the layout of profiles.json."""
    plain = {name: entry[name] for name in _PLAIN if name in entry}
    return Profile(
        **plain,
        latency_ms={int(batch): _curve(points) for batch, points in entry["latency_ms"].items()},
        overhead=Overhead(**entry["overhead"]),
        memory_mib=_by_batch(entry.get("memory_mib", {})),
        worker_held_mib=_by_batch(entry.get("worker_held_mib", {})),
    )


def _by_batch(mib: Mapping[str, float]) -> dict[int, float]:
    return {int(batch): figure for batch, figure in mib.items()}


def _curve(by_sms: Mapping[str, float]) -> Curve:
    return Curve(tuple(sorted((float(sms), value) for sms, value in by_sms.items())))


@dataclass(frozen=True)
class Overhead:
    """The time until a new instance serves, in parts."""

    create_s: float
    """Driver: destroy and create GPU and compute instances. Not under MPS."""
    start_s: float
    """Process: import libraries, build the model on the host. Not with a prepared process."""
    load_s: float
    """GPU: context, weights, first inference."""

    def total_s(self, *, mig: bool, prepared: bool) -> float:
        """Total seconds. Creating counts only under MIG, starting only without a prepared
        process."""
        return self.create_s * mig + self.start_s * (not prepared) + self.load_s


TRAINING_INTERFERENCE = 0.145
"""Measured slowdown of a training beside serving on `INTERFERING_PART` of the SMs, as a
fraction."""


@dataclass(frozen=True)
class Profile:
    """Measurements of one model on one board."""

    model: str
    board: str
    latency_ms: Mapping[int, Curve]
    """Batch -> milliseconds of one batch over SMs."""
    training_ratio: float
    """Time of a training step over that of an inference of the same samples."""
    interference: float
    """Slowdown of a batch under MPS beside neighbours that hold `INTERFERING_PART` of the SMs."""
    contention: float
    """Slowdown of a batch per busy neighbour without partitioning."""
    overhead: Overhead
    provenance: str
    memory_mib: Mapping[int, float] = field(default_factory=dict)
    """Batch -> memory that serving it takes at least; empty if it was not measured."""
    training_memory_mib: float | None = None
    """Memory that a training takes at least; None if it was not measured."""
    worker_held_mib: Mapping[int, float] = field(default_factory=dict)
    """Batch -> memory that a process holds which serves batches of up to this size; empty if it was
    not measured."""
    retraining_held_mib: float | None = None
    estimate_held_mib: float | None = None
    """Memory that a process of a retraining or of its estimate holds; None if it was not measured.
    """
    training_interference: float = TRAINING_INTERFERENCE
    """Slowdown of a training under MPS beside neighbours that serve on `INTERFERING_PART` of the
    SMs."""

    def serving_mib(self, batch: int) -> float:
        """Memory without which a process cannot serve batches of this size; 0 if unknown."""
        return CONTEXT_MIB + _of_batch(self.memory_mib, batch) if self.memory_mib else 0.0

    def held_by_worker_mib(self, batch: int) -> float:
        """Memory that a process takes where nothing limits it; 0 if unknown."""
        if self.worker_held_mib:
            return _of_batch(self.worker_held_mib, batch)
        if not self.memory_mib:
            return 0.0
        return CONTEXT_MIB + HELD_BY_WORKER * _of_batch(self.memory_mib, batch)

    @property
    def held_by_retraining_mib(self) -> float:
        """Memory that a retraining takes where nothing limits it; 0 if unknown."""
        if self.retraining_held_mib is not None:
            return self.retraining_held_mib
        return self._held_mib(HELD_BY_TRAINING)

    @property
    def held_by_estimate_mib(self) -> float:
        """Memory that an estimate takes where nothing limits it; 0 if unknown."""
        if self.estimate_held_mib is not None:
            return self.estimate_held_mib
        return self._held_mib(HELD_BY_ESTIMATE)

    @property
    def training_mib(self) -> float:
        """Memory without which a process cannot retrain; 0 if unknown.

        Without a measurement, a multiple of what serving the largest batch takes: gradients,
        optimizer state and the activations of a training batch.
        """
        if self.training_memory_mib is not None:
            return CONTEXT_MIB + self.training_memory_mib
        return (
            CONTEXT_MIB + TRAINING_MEMORY * max(self.memory_mib.values())
            if self.memory_mib
            else 0.0
        )

    def _held_mib(self, factor: float) -> float:
        least_mib = self.training_mib
        return CONTEXT_MIB + factor * (least_mib - CONTEXT_MIB) if least_mib else 0.0

    def latency_s(self, batch: int, sms: float) -> float:
        """Seconds of a batch of any size: linear between measured batches."""
        sizes = sorted(self.latency_ms)
        if batch in self.latency_ms:
            return self.latency_ms[batch].at(sms) / 1e3
        if batch < sizes[0] or len(sizes) == 1:
            return self.latency_ms[sizes[0]].at(sms) / 1e3 * max(1.0, batch / sizes[0])
        above = next((size for size in sizes if size > batch), sizes[-1])
        below = sizes[sizes.index(above) - 1]
        low, high = self.latency_ms[below].at(sms), self.latency_ms[above].at(sms)
        return (low + (batch - below) / (above - below) * (high - low)) / 1e3

    def training_s(self, samples: float) -> Curve:
        """Seconds to train on `samples` samples, over SMs, from the largest batch's latency."""
        batch = max(self.latency_ms)
        return self.latency_ms[batch].scaled(samples * self.training_ratio / batch / 1e3)


CONTEXT_MIB = 960.0
"""Memory of a process beside what torch allocates: its context and kernels. On an H200 under MPS
613 MiB when it starts, and 845 to 971 after its work."""
TRAINING_MEMORY = 8.0
"""Memory of training over that of serving the largest batch, where training was not measured."""
HELD_BY_WORKER, HELD_BY_TRAINING, HELD_BY_ESTIMATE = 3.0, 4.5, 2.0
"""Memory that torch keeps in a process over the peak that a profile recorded of one batch, or of
one training step of 32 samples, where it was not measured. It keeps what it has allocated once: for
steps before they were captured as a graph, and for the graph. On an H200 two models had 2.7 to 2.9,
4.1 to 4.2, and 1.6."""
INTERFERING_PART = 64 / 132
"""The share of the SMs that the neighbour had when interference was measured."""


def _of_batch(mib: Mapping[int, float], batch: int) -> float:
    """The memory of the next larger batch that was measured."""
    return mib[min((measured for measured in mib if measured >= batch), default=max(mib))]


@dataclass(frozen=True)
class Curve:
    """Value over SMs through measured points, ascending in SMs."""

    points: tuple[tuple[float, float], ...]

    def at(self, sms: float) -> float:
        """The value at `sms` SMs."""
        first, last = self.points[0], self.points[-1]
        if sms <= first[0] or sms >= last[0]:
            nearest = first if sms <= first[0] else last
            return nearest[1] * self._law(sms) / self._law(nearest[0])
        right = bisect_left(self.points, (sms,))
        (low, above), (high, below) = self.points[right - 1], self.points[right]
        part = (1 / sms - 1 / low) / (1 / high - 1 / low)
        return above + part * (below - above)

    def scaled(self, factor: float) -> Curve:
        """The same shape, every value times `factor`."""
        return Curve(tuple((sms, value * factor) for sms, value in self.points))

    def raised(self, by: float) -> Curve:
        """Every value plus `by`, which does not depend on SMs."""
        return Curve(tuple((sms, value + by) for sms, value in self.points))

    def _law(self, sms: float) -> float:
        a, b = self._fit
        return a + b / sms

    @cached_property
    def _fit(self) -> tuple[float, float]:
        """a and b of a + b / SMs by least squares, neither of them negative."""
        if len(self.points) == 1:
            return 0.0, 1.0
        inverse = [1 / sms for sms, _ in self.points]
        values = [value for _, value in self.points]
        mean_x, mean_y = sum(inverse) / len(inverse), sum(values) / len(values)
        spread = sum((x - mean_x) ** 2 for x in inverse)
        slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(inverse, values, strict=True))
        slope = min(max(0.0, slope / spread), mean_y / mean_x)
        return mean_y - slope * mean_x, slope


@dataclass(frozen=True)
class Service:
    """A tenant's model as it is served: answers within `slo_s`, in batches of up to `batch`."""

    tenant: str
    profile: Profile
    slo_s: float
    batch: int
    min_gpcs: int = 1
    weight: float = 1.0
    """What its goodput counts for policies that plan, beside that of the others."""
    floor: float = 0.0
    """The share of its requests that a plan is able to answer in time, if any plan is."""

    def latency_s(self, batch: int, sms: float) -> float:
        """Seconds of one batch alone on `sms` SMs."""
        return self.profile.latency_s(batch, sms)

    def full_batch(self, sms: float) -> int:
        """The largest batch within the objective; 0 if a single request exceeds it.

        A request may wait for the previous batch, hence twice the latency.
        """
        for batch in range(self.batch, 1, -1):
            if 2 * self.latency_s(batch, sms) <= self.slo_s:
                return batch
        return int(self.latency_s(1, sms) <= self.slo_s)

    def capability_rps(self, sms: float) -> float:
        """Requests per second that one worker process on `sms` SMs answers within the objective."""
        batch = self.full_batch(sms)
        return batch / self.latency_s(batch, sms) if batch else 0.0

    def capabilities_rps(self, board: Board) -> dict[int, float]:
        """GPCs -> requests per second of one instance; 0 where the model does not fit."""
        needed_mib = self.profile.serving_mib(self.batch)
        return {
            gpcs: self.capability_rps(board.sms_of(gpcs))
            if board.memory_mib_of(gpcs) >= needed_mib
            else 0.0
            for gpcs in board.sizes
        }

    def training_sizes(self, board: Board) -> tuple[int, ...]:
        """The instance sizes in GPCs that have the memory to retrain the model."""
        needed_mib = self.profile.training_mib
        return tuple(gpcs for gpcs in board.sizes if board.memory_mib_of(gpcs) >= needed_mib)
