"""The runs of the headline: workloads, conditions and policies of docs/evaluation-protocol.md.

Every workload keeps its own models, accuracies and durations. The seed gives the place of the
traces, the window of the data at which the run begins, and all that is random.
"""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.configurations import IMAGES, TEXTS, measured_windows, with_configurations
from benchmarks.traces import arrivals, separate_offsets
from migrator.advise.leads import STATIC
from migrator.advise.static_layouts import static_policies
from migrator.core.catalogue import board
from migrator.core.errors import InputError
from migrator.core.profiles import INTERFERING_PART, Curve, Profile, Service, profile
from migrator.core.scenario import Drift, Scenario, ServedTenant, Trace
from migrator.forecast.forecaster import Forecaster
from migrator.forecast.selection import forecaster
from migrator.policies.policy import Policy, Sharing, Sight, sharing_on
from migrator.policies.registry import policy as policy_named
from migrator.records.outcome import RunOutcome
from migrator.reproduce.evaluation import AUTO
from migrator.reproduce.experiment import PAPER_WITHOUT_PASS
from migrator.simulation.compare import prepare
from migrator.simulation.run import run
from migrator.workload.capacity import highest_rps
from migrator.workload.datasets import datasets
from migrator.workload.datasets import drifts as packaged_drifts
from migrator.workload.workloads import GPU, SLO_MS, WINDOW_S, all_workloads

WINDOWS = 4
SHARES = f"{GPU}-MPS"
"""The same GPU divided by MPS, on which slices can be lent."""
KINDS = STEADY, BURSTY = (
    ("alibaba", "alibaba-steady", "twitter"),
    ("azure", "azure-bursty", "batch"),
)
ARRIVALS = {"mixed": KINDS, "steady": (STEADY,), "bursty": (BURSTY,)}
"""Kinds of arrivals, which tenants have in turn."""
SPREAD_S = 60
"""Most seconds by which the copies of a trace are late that are added up for a rate."""
SEEDS_OF_A_WORKLOAD = 5
NEW_SAMPLES = {"nc-cifar-10": 5000, "nc-core50": 8 * 300}
"""Training samples of a class in the whole data set: CIFAR-10, and the frames of an object of
CORe50 in 8 of 11 sessions. 20 Newsgroups is used as a whole."""
REPLAYED = 200
"""Samples of each earlier class."""
MASKED_WORDS = Path("docs/results/h200-published.json"), "bert-base nc-20-newsgroups 0 masked words"
"""BERT-base after a pre-training on masked words: its published weights could not be had."""
BUSY = -1.0
"""`Condition.instances`: as slow as an MPS share whose neighbours are all busy."""
LENDING, OWN_SLICES = "+lending", "-lending"
"""After a policy's name: its slices are lent, or not."""
NO_PASS = PAPER_WITHOUT_PASS.name


@dataclass(frozen=True)
class Condition:
    """What is varied; the defaults are those of the protocol."""

    load: float = 0.8
    whole: bool = True
    """Whether retrainings are as long as the whole data sets give; else those of the cut data."""
    tenants: int = 2
    board: str = GPU
    slo_ms: float = SLO_MS
    window_s: int = WINDOW_S
    slot_s: float = 1.0
    length: float = 1.0
    """Factor on retrainings, known to policies."""
    longer: float = 1.0
    """Factor on retrainings that policies do not know."""
    slower: float = 1.0
    """Factor on batches that profiles do not tell."""
    instances: float = 0.0
    """The part by which batches and training steps on MIG instances are slower than on an MPS
    share of their SMs alone; `BUSY`: than with busy neighbours. Profiles have it."""
    interference: float = 1.0
    """Factor on the measured interference under MPS."""
    estimates: float = 0.0
    """Added to every estimate of the accuracy after a retraining."""
    bias: float = 0.0
    """The part by which forecasts are too high."""
    error: float = 0.0
    """Standard deviation of a factor on the forecast of a tenant in a window."""
    arrivals: str = "mixed"
    """Of `ARRIVALS`."""
    multiplied: bool = False
    """Whether rates are multiplied for the load instead of copies added up."""
    configurations: bool = False
    """Whether retrainings have four configurations instead of one."""

    @property
    def run_s(self) -> int:
        """The length of a run."""
        return WINDOWS * self.window_s

    @property
    def changed(self) -> dict[str, object]:
        """What differs from the protocol."""
        default = Condition()
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if getattr(self, field.name) != getattr(default, field.name)
        }

    def seen_by(self, policy: Policy) -> Condition:
        """The condition without what the policy does not notice."""
        default = Condition()
        same: dict[str, object] = {}
        if sharing_on(policy, board(self.board)) is Sharing.MIG:
            same["interference"] = default.interference
        else:
            same["instances"] = default.instances
        if not policy.estimates:
            same["estimates"] = default.estimates
        if policy.sight not in (Sight.START, Sight.FORECAST):
            same |= {"bias": default.bias, "error": default.error}
        return replace(self, **same)  # type: ignore[arg-type]


def chosen(name: str) -> Policy:
    """A registered policy, the plan without pass, or one with or without lending."""
    if name == NO_PASS:
        return PAPER_WITHOUT_PASS
    for ending in (LENDING, OWN_SLICES):
        if name.endswith(ending):
            one = copy.copy(policy_named(name.removesuffix(ending)))
            one.lends = ending == LENDING  # type: ignore[attr-defined]
            return one
    return policy_named("equal-mig" if name == STATIC else name)


@dataclass(frozen=True)
class Run:
    """One run; for the best static split, one of each split that is worth it."""

    workload: str
    condition: Condition
    policy: str
    seed: int

    @property
    def key(self) -> tuple[str, int]:
        """Its name among finished runs."""
        seen = self.condition.seen_by(chosen(self.policy)).changed
        return f"{self.workload}, {self.policy}, {json.dumps(seen, sort_keys=True)}", self.seed

    def result(self, data: Path) -> Result:
        """Run it."""
        began_s = time.process_time()
        scenario = scenario_of(self, data)
        layouts = static_policies(scenario) if self.policy == STATIC else (chosen(self.policy),)
        best = max((self._outcome(scenario, one) for one in layouts), key=_goodput)
        tally = best.tally
        tenants = [tenant for window in best.windows for tenant in window.tenants]
        return Result(
            received=tally.received,
            goodput=round(tally.goodput, 2),
            in_time=round(tally.goodput + tally.wrong, 2),
            worst=round(best.fairness.worst_share, 4),
            jain=round(best.fairness.jain_index, 4),
            retrained=sum(tenant.retrained_s is not None for tenant in tenants),
            layout=best.policy if self.policy == STATIC else "",
            cpu_s=round(time.process_time() - began_s, 2),
        )

    def _outcome(self, scenario: Scenario, policy: Policy) -> RunOutcome:
        prepare(policy)
        plans = policy.sight in (Sight.START, Sight.FORECAST)
        ahead = forecaster(AUTO if plans else "last-mean")
        if plans and (self.condition.bias or self.condition.error):
            ahead = _WrongForecaster(ahead, self.condition, self.seed)
        return run(
            *(scenario, policy, ahead), longer=self.condition.longer, slower=self.condition.slower
        )


@dataclass(frozen=True)
class Result:
    """What is kept of a run."""

    received: int
    goodput: float
    in_time: float
    worst: float
    """Goodput over received of the tenant that has least of it."""
    jain: float
    """How even the tenants' shares are."""
    retrained: int
    """Tenants times windows in which a retrained model began to serve."""
    layout: str
    """The best static split."""
    cpu_s: float


def row(one: Run, result: Result, data: Path) -> dict[str, object]:
    """A run with its result, for JSON; `place`: that of its second tenant's trace."""
    kind, begin_s = place_of(one, 1, data)
    about = {"workload": one.workload, "seed": one.seed, "policy": one.policy}
    about["place"] = f"{kind} {begin_s}"
    seen = one.condition.seen_by(chosen(one.policy))
    return {**about, "changed": seen.changed, **asdict(result)}


def _goodput(outcome: RunOutcome) -> float:
    return outcome.tally.goodput


class _WrongForecaster:
    """A forecaster whose forecasts are off by a factor, another one in every window."""

    summary = "a forecaster that is wrong"

    def __init__(self, right: Forecaster, condition: Condition, seed: int) -> None:
        self.name = f"{right.name} that is wrong"
        self._right, self._condition, self._seed = right, condition, seed

    def ahead(
        self, history: NDArray[np.float64], slots: int, window_slots: int
    ) -> NDArray[np.float64]:
        """The right forecast times the factor."""
        drawn = np.random.default_rng([self._seed, len(history), int(history.sum())])
        sigma = np.sqrt(np.log1p(self._condition.error**2))
        factor = (1 + self._condition.bias) * float(drawn.lognormal(-(sigma**2) / 2, sigma))
        wrong: NDArray[np.float64] = factor * self._right.ahead(history, slots, window_slots)
        return wrong


def scenario_of(one: Run, data: Path) -> Scenario:
    """The scenario of a run."""
    condition, names = one.condition, list(all_workloads())
    gpu, number = board(condition.board), names.index(one.workload)
    pairs = chain.from_iterable(
        zip(workload.models, workload.datasets, strict=True)
        for name in (*names[number:], *names[:number])
        for workload in [all_workloads()[name]]
    )
    models: dict[str, str] = {}
    for model, dataset in pairs:
        if len(models) < condition.tenants:
            models.setdefault(model, dataset)
    on_mig = sharing_on(chosen(one.policy), gpu) is Sharing.MIG
    rates_of = board(GPU) if gpu.is_of_shares else gpu
    tenants = []
    for place, (model, dataset) in enumerate(models.items()):
        measured = profile(model, gpu.name)
        given = Service(model, measured, condition.slo_ms / 1e3, 1)
        mean_rps = condition.load / condition.tenants * highest_rps(given, rates_of)
        trace, offset_s = _arrivals(one, place, mean_rps, data)
        slower = condition.instances if on_mig else 0.0
        windows = _drifts(measured, dataset, whole=condition.whole)
        first = one.seed % (len(windows) - WINDOWS + 1)
        seen = tuple(_as_seen(drift, measured, condition, slower) for drift in windows[first:])
        if condition.configurations:
            seen = _configured(seen, model, number + one.seed + place)
        service = replace(given, profile=_supposed(measured, condition, slower))
        tenants.append(ServedTenant(service, trace, offset_s, seen))
    return Scenario(
        f"{one.workload}, {json.dumps(condition.changed)}",
        *(gpu, float(condition.window_s), condition.slot_s, WINDOWS, tuple(tenants)),
        *("migrator", "last-mean", one.seed, True),
    )


# Arrivals.


def place_of(one: Run, place: int, data: Path) -> tuple[str, int]:
    """The kind of a tenant's arrivals, and the second at which the run begins.

    Places of steady and of bursty traces are counted through; workload and seed give the number.
    """
    names, run_windows = list(all_workloads()), one.condition.run_s / WINDOW_S
    in_turn = ARRIVALS[one.condition.arrivals]
    offsets = [
        (kind, offset_s)
        for kind in in_turn[place % len(in_turn)]
        for offset_s in separate_offsets(
            arrivals(kind, data, 0), max(WINDOWS, math.ceil(run_windows))
        )
    ]
    # further tenants of a kind are far from the first
    number = SEEDS_OF_A_WORKLOAD * names.index(one.workload) + one.seed
    return offsets[(number + place // len(in_turn) * len(offsets) // 4) % len(offsets)]


def _arrivals(one: Run, place: int, mean_rps: float, data: Path) -> tuple[Trace, int]:
    """A tenant's trace with this mean in the run, and the second at which the run begins."""
    kind, begin_s = place_of(one, place, data)
    trace = arrivals(kind, data, 0)
    factor = mean_rps / _mean(trace, begin_s, one.condition.run_s)
    if one.condition.multiplied:
        return trace.scaled(factor), begin_s
    copied = trace.superposed(factor, SPREAD_S, one.seed)
    factor *= mean_rps / _mean(copied, begin_s, one.condition.run_s)
    return trace.superposed(factor, SPREAD_S, one.seed), begin_s


def _mean(trace: Trace, begin_s: int, seconds: int) -> float:
    mean_rps = float(trace.counts[begin_s : begin_s + seconds].mean())
    if mean_rps == 0:
        raise InputError(f"{trace.name}: nothing comes in {seconds} s from second {begin_s}")
    return mean_rps


# Retrainings and profiles.


def _drifts(measured: Profile, dataset: str, *, whole: bool) -> tuple[Drift, ...]:
    """The windows of a model on its data, with its own accuracies and durations."""
    of = datasets()[dataset]
    if measured.model == "bert-base":
        return tuple(_after_masked_words(measured))
    windows = packaged_drifts(dataset, measured)
    if not whole or dataset not in NEW_SAMPLES:
        return windows
    epochs = of.measured[measured.model].epochs or of.epochs
    return tuple(
        replace(
            drift,
            seconds=measured.training_s(
                epochs * of.classes * (NEW_SAMPLES[dataset] + REPLAYED * (window + 1))
            ),
        )
        for window, drift in enumerate(windows)
    )


def _after_masked_words(measured: Profile) -> Iterator[Drift]:
    course = _masked_words()
    for window in course["rows"]:
        yield Drift(
            window["accuracy_pre"],
            window["accuracy_post"],
            measured.training_s(window["samples"] * course["epochs"]),
            window["accuracy_estimated"],
        )


@cache
def _masked_words() -> Mapping[str, Any]:
    file, key = MASKED_WORDS
    path = Path(__file__).parent.parent / file
    courses = json.loads(path.read_text(encoding="utf-8"))["courses"]
    course: Mapping[str, Any] = next(course for course in courses if course["key"] == key)
    return course


def _as_seen(drift: Drift, measured: Profile, condition: Condition, slower: float) -> Drift:
    """The window under a condition."""
    assert drift.seconds is not None
    interference = condition.interference * measured.training_interference
    seconds = _on_instances(drift.seconds.scaled(condition.length), slower, interference, measured)
    expected = min(1.0, max(0.0, drift.accuracy_expected + condition.estimates))
    return replace(drift, seconds=seconds, accuracy_estimated=expected)


def _supposed(measured: Profile, condition: Condition, slower: float) -> Profile:
    """The profile under a condition."""
    interference = condition.interference * measured.interference
    return replace(
        measured,
        latency_ms={
            batch: _on_instances(curve, slower, interference, measured)
            for batch, curve in measured.latency_ms.items()
        },
        interference=interference,
        training_interference=condition.interference * measured.training_interference,
    )


def _on_instances(curve: Curve, slower: float, interference: float, measured: Profile) -> Curve:
    """The curve on MIG instances; the whole board shares its bandwidth with nobody."""
    sms = board(measured.board).sms
    by = {
        size: interference * (1 - min(1.0, size / sms)) / INTERFERING_PART
        if slower == BUSY
        else slower * (size < sms)
        for size, _ in curve.points
    }
    return Curve(tuple((size, value * (1 + by[size])) for size, value in curve.points))


def _configured(windows: tuple[Drift, ...], model: str, first: int) -> tuple[Drift, ...]:
    """The windows with the shorter configurations that were measured of small models."""
    parts = measured_windows()[TEXTS if model == "bert-base" else IMAGES]
    return tuple(
        with_configurations(drift, parts[(first + window) % len(parts)])
        for window, drift in enumerate(windows)
    )
