"""Which runs each part of the evaluation has, as docs/evaluation-protocol.md fixes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import product

from benchmarks.headline_scenarios import (
    BUSY,
    LENDING,
    NO_PASS,
    OWN_SLICES,
    SHARES,
    Condition,
    Run,
)
from migrator.advise.leads import STATIC
from migrator.workload.workloads import all_workloads


class Part(StrEnum):
    """A part of the evaluation, and the name of its page."""

    HEADLINE = "headline"
    ABLATION = "ablation"
    SENSITIVITY = "sensitivity"


POLICIES = (
    *("migrator", "equal-mig", STATIC, "miso", "paris", "paris-reconfiguring"),
    *("ekya", "ekya-by-requests", "astraea", "migrator-paper", "oracle"),
)
LOADS = (0.6, 0.8, 1.0)
SEEDS = {Part.HEADLINE: 5, Part.ABLATION: 1, Part.SENSITIVITY: 1}
"""Number of seeds of each part."""
ORACLE_SEEDS = 2
"""The oracle takes as long as all others together: it runs with the first seeds only."""
ORACLE_POLICIES = ("migrator", "migrator-paper", "oracle")
"""Those that run with both tenants on steady, and both on bursty traces."""
CUT_SEEDS = 1
"""So do all with the cut data, at load 0.8."""
BASE = Condition()
ALIKE = {arrivals: replace(BASE, arrivals=arrivals) for arrivals in ("steady", "bursty")}
"""Both tenants on traces of this kind."""
EVERY = 3
"""Conditions are varied on every third workload, which have all models of W1 to W16."""
STRIDE = 3
"""Workloads run in the order of every third one, so that the first few have all models."""
VARIED_POLICIES = ("migrator", STATIC, "ekya", "astraea", "paris-reconfiguring")
INSTANCE_POLICIES = ("equal-mig", "miso", "paris", "paris-reconfiguring")
STEPS = ("equal-mig", NO_PASS, "migrator-paper", "migrator-required", "migrator-once", "migrator")
VARIED: dict[str, dict[str, Condition]] = {
    "instances slower by": {
        **{f"{part:.0%}": replace(BASE, instances=part) for part in (0.1, 0.2)},
        "as shares with busy neighbours": replace(BASE, instances=BUSY),
    },
    "interference under MPS x": {
        f"{factor:g}": replace(BASE, interference=factor) for factor in (0.0, 0.5, 1.5)
    },
    "estimates of accuracy, points": {
        f"{points:+d}": replace(BASE, estimates=points / 100)
        for points in (-20, -10, -5, 5, 10, 20)
    },
    "retrainings longer than known by": {
        f"{part:+.0%}": replace(BASE, longer=1 + part) for part in (-0.25, -0.1, 0.1, 0.25)
    },
    "batches longer than profiled by": {
        f"{part:+.0%}": replace(BASE, slower=1 + part) for part in (-0.1, 0.1)
    },
    "forecasts": {
        **{f"{bias:+.0%}": replace(BASE, bias=bias) for bias in (-0.25, 0.25)},
        **{f"error {error:.0%}": replace(BASE, error=error) for error in (0.25, 0.5)},
    },
    "objective, ms": {f"{ms:g}": replace(BASE, slo_ms=ms) for ms in (20, 50, 300)},
    "window, s": {f"{s}": replace(BASE, window_s=s) for s in (60, 100, 400)},
    "slot, s": {f"{s:g}": replace(BASE, slot_s=s) for s in (0.5, 2.0, 5.0, 10.0)},
    "tenants": {f"{count}": replace(BASE, tenants=count) for count in (3, 5, 7)},
    "retraining x": {f"{length:g}": replace(BASE, length=length) for length in (0.5, 2, 4)},
    "rates": {"multiplied": replace(BASE, multiplied=True)},
    "board": {name: replace(BASE, board=name) for name in ("A100-40GB", "H100-80GB-SXM")},
}
"""What is varied -> value -> condition."""


def _headline(seeds: Sequence[int]) -> Iterator[Run]:
    """Every policy at every load and with the cut data; the oracle with arrivals of one kind."""
    for seed in seeds:
        for condition in (
            *(replace(BASE, load=load) for load in LOADS),
            *((replace(BASE, whole=False),) if seed < CUT_SEEDS else ()),
        ):
            for policy in POLICIES:
                if policy != "oracle" or seed < ORACLE_SEEDS:
                    yield from (Run(name, condition, policy, seed) for name in all_workloads())
        for condition, policy in product(ALIKE.values(), ORACLE_POLICIES):
            if seed < ORACLE_SEEDS:
                yield from (Run(name, condition, policy, seed) for name in all_workloads())


def _ablation(seeds: Sequence[int]) -> Iterator[Run]:
    """The steps, and the peers with what can be given to them."""
    shares, several = replace(BASE, board=SHARES), replace(BASE, configurations=True)
    kinds = [(BASE, name) for name in (*STEPS, "ekya", "ekya-by-requests", *INSTANCE_POLICIES)]
    kinds += [
        (shares, f"{name}{ending}")
        for name in ("migrator", *INSTANCE_POLICIES)
        for ending in (OWN_SLICES, LENDING)
    ]
    kinds += [(several, name) for name in ("migrator", "ekya", "ekya-by-requests")]
    for seed in seeds:
        for condition, policy in dict.fromkeys(kinds):
            yield from (Run(name, condition, policy, seed) for name in all_workloads())


def _sensitivity(seeds: Sequence[int]) -> Iterator[Run]:
    """One condition at a time."""
    conditions = [BASE, *(one for values in VARIED.values() for one in values.values())]
    for seed in seeds:
        for condition in conditions:
            for policy in VARIED_POLICIES:
                for name in list(all_workloads())[::EVERY]:
                    yield Run(name, condition, policy, seed)


_RUNS = {
    Part.HEADLINE: _headline,
    Part.ABLATION: _ablation,
    Part.SENSITIVITY: _sensitivity,
}


def runs_of(part: Part, seeds: int) -> list[Run]:
    """The runs of a part: seed by seed, and in a seed one workload after the other.

    So that an interrupted evaluation has whole workloads with all their conditions and policies.
    """
    names = list(all_workloads())
    order = {name: number * STRIDE % len(names) for number, name in enumerate(names)}
    return sorted(_RUNS[part](range(seeds)), key=lambda run: (run.seed, order[run.workload]))
