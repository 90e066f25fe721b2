"""What the peers lose with every limit of a real GPU, one limit after another.

The first step gives them what no GPU gives; the last but one is the default of every run. A limit
applies to the policies that it concerns, so that MIG policies are run twice at most.
"""

from __future__ import annotations

from dataclasses import replace

from migrator.core.catalogue import board
from migrator.core.peer_limits import (
    DEFAULT_LIMITS,
    Overlap,
    PeerLimits,
    ResizedTraining,
    ShareSizes,
)
from migrator.policies.policy import Sharing, Sight
from migrator.policies.registry import policy
from migrator.report.page import Axis
from migrator.reproduce.evaluation import AUTO, Evaluation, PolicyResults
from migrator.reproduce.experiment import (
    Experiment,
    Figures,
    Findings,
    Outcomes,
    Setting,
    bars,
    listed,
    signed,
    table,
)
from migrator.simulate.compare import Job
from migrator.workload.workloads import GPU

OURS = "migrator"
PEERS = ("ekya", "astraea", "gpulet", "infless", "paris-reconfiguring", "paris")
NAME = "ladder"
_TENTH = 0.1
"""Part of the SMs that a process has at least where the floor is given away."""


def steps() -> dict[str, PeerLimits]:
    """The steps in order, each with one limit more than the one before."""
    found = {
        "no limits": PeerLimits(
            _TENTH * board(GPU).sms, ShareSizes.ANY, ResizedTraining.FREE, Overlap.UNLIMITED
        )
    }
    for words, limit in (
        ("processes of 16 SMs and more", {"min_sms": None}),
        ("shares of the runtime", {"shares": ShareSizes.RUNTIME}),
        ("a resized retraining restarts", {"resized_training": ResizedTraining.RESTARTS}),
        ("overlap within the GPU", {"overlap": Overlap.LIMITED}),
        ("cold workers", {"prepared": False}),
    ):
        found[words] = replace(list(found.values())[-1], **limit)
    return found


DEFAULT = next(words for words, limits in steps().items() if limits == DEFAULT_LIMITS)
"""The step whose limits every other run has."""


def limits_of(name: str, limits: PeerLimits) -> PeerLimits:
    """The limits that concern a policy; the others are the default."""
    kind = policy(name)
    if kind.sharing is Sharing.MPS:
        return limits
    prepared = limits.prepared or kind.sight is not Sight.NOTHING
    return replace(DEFAULT_LIMITS, prepared=prepared)


def evaluation_of(name: str, limits: PeerLimits) -> Evaluation:
    """The runs of a policy with the limits of a step."""
    return Evaluation((name,), forecaster=AUTO, peers=limits_of(name, limits))


def _jobs(setting: Setting) -> tuple[Job, ...]:
    wanted = (
        job
        for limits in steps().values()
        for name in (OURS, *PEERS)
        for job in evaluation_of(name, limits).jobs(setting)
    )
    return tuple(dict.fromkeys(wanted))


def _measured(setting: Setting, outcomes: Outcomes) -> dict[str, dict[str, PolicyResults]]:
    """Step -> policy -> its results."""
    return {
        words: {
            name: evaluation_of(name, limits).measured(setting, outcomes) for name in (OURS, *PEERS)
        }
        for words, limits in steps().items()
    }


def _goodputs(setting: Setting, outcomes: Outcomes) -> dict[str, dict[str, float]]:
    return {
        words: {name: each.goodput(name) for name, each in by_policy.items()}
        for words, by_policy in _measured(setting, outcomes).items()
    }


def _figures(setting: Setting, outcomes: Outcomes) -> Figures:
    """Mean goodput and migrator's gain by step and policy."""
    found = _goodputs(setting, outcomes)
    return {
        "default": DEFAULT,
        "workloads": list(Evaluation(()).chosen(setting)),
        "goodput": found,
        "gains": {
            words: {name: each[OURS] / each[name] - 1 for name in PEERS}
            for words, each in found.items()
        },
    }


def _findings(setting: Setting, outcomes: Outcomes) -> Findings:
    found = _goodputs(setting, outcomes)
    rows = [
        (
            f"{words} (default)" if words == DEFAULT else words,
            f"{100 * each[OURS]:.1f}",
            *(f"{100 * each[name]:.1f} ({signed(each[OURS] / each[name] - 1)})" for name in PEERS),
        )
        for words, each in found.items()
    ]
    return Findings(
        paragraphs=(
            "What do the peers owe to a simulation that gives them more than a GPU does? Each line "
            "has one limit more than the line before. The default of every run is the line so "
            "marked: what was measured on an H200 and what the live runtime does. "
            "`paris-reconfiguring` is PARIS as the paper runs it, `paris` its static form; both "
            "use MIG, so that only the last line concerns them.",
        ),
        blocks=(
            bars(
                "Goodput over received, average over the workloads",
                list(found),
                {name: [each[name] for each in found.values()] for name in (OURS, *PEERS)},
                Axis("step"),
                Axis("goodput", share=True),
            ),
            table(
                "Goodput (%), average over the workloads, migrator's gain in brackets",
                ("step", OURS, *PEERS),
                rows,
            ),
        ),
        reported=("The paper does not say how its peers were run.",),
        differs=(
            f"With the default limits migrator's gains are {_gains(found[DEFAULT])}, without any "
            f"limit {_gains(next(iter(found.values())))}.",
        ),
    )


def _gains(goodputs: dict[str, float]) -> str:
    return listed(f"{signed(goodputs[OURS] / goodputs[each] - 1)} over {each}" for each in PEERS)


LADDER = Experiment(
    NAME, "What the limits of a real GPU cost the peers", _jobs, _findings, _figures
)
