"""What the limits of a real GPU cost the peers: python -m benchmarks.ladder [--workloads W1,W8].

The paper's workloads with peers that have no limits, then with one limit more in every step.
Writes ladder.md and ladder.json. All 16 workloads take about six minutes on two cores.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from benchmarks.runs import command, options, outcomes_of, setting_of, table
from migrator.core.catalogue import board
from migrator.core.scenario import DEFAULT_LIMITS, Overlap, PeerLimits, ResizedTraining, ShareSizes
from migrator.policies.policy import Sharing, Sight
from migrator.policies.registry import policy
from migrator.reproduce.evaluation import AUTO, Evaluation
from migrator.reproduce.experiment import Outcomes, Setting
from migrator.simulation.compare import SimulationJob
from migrator.workload.workloads import GPU

Figures = dict[str, Any]
OURS = "migrator"
PEERS = ("ekya", "astraea", "gpulet", "infless", "paris-reconfiguring", "paris")
SM_FLOOR_WITHOUT_LIMITS = 0.1
"""Part of the SMs that a process has at least where the floor is given away."""


def steps() -> dict[str, PeerLimits]:
    """The steps in order, each with one limit more than the one before."""
    limits = PeerLimits(
        SM_FLOOR_WITHOUT_LIMITS * board(GPU).sms,
        ShareSizes.ANY,
        ResizedTraining.FREE,
        Overlap.UNLIMITED,
    )
    by_step = {"no limits": limits}
    for step, limit in (
        ("processes of 16 SMs and more", {"min_sms": None}),
        ("shares of the runtime", {"shares": ShareSizes.RUNTIME}),
        ("a resized retraining restarts", {"resized_training": ResizedTraining.RESTARTS}),
        ("overlap within the GPU", {"overlap": Overlap.LIMITED}),
        ("cold workers", {"prepared": False}),
    ):
        limits = replace(limits, **limit)
        by_step[step] = limits
    return by_step


DEFAULT = next(step for step, limits in steps().items() if limits == DEFAULT_LIMITS)
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


def jobs(setting: Setting) -> tuple[SimulationJob, ...]:
    """A run per step, policy and workload; steps that do not concern a policy share its runs."""
    wanted = (
        job
        for limits in steps().values()
        for name in (OURS, *PEERS)
        for job in evaluation_of(name, limits).jobs(setting)
    )
    return tuple(dict.fromkeys(wanted))


def figures(setting: Setting, outcomes: Outcomes) -> Figures:
    """Mean goodput and migrator's gain by step and policy."""
    goodput = {
        step: {
            name: evaluation_of(name, limits).measured(setting, outcomes).goodput(name)
            for name in (OURS, *PEERS)
        }
        for step, limits in steps().items()
    }
    return {
        "default": DEFAULT,
        "workloads": list(Evaluation(()).chosen(setting)),
        "traces": "generated" if setting.data is None else "real",
        "goodput": goodput,
        "gains": {
            step: {name: by_policy[OURS] / by_policy[name] - 1 for name in PEERS}
            for step, by_policy in goodput.items()
        },
    }


def text(figures: Figures, made_by: str) -> str:
    """The page."""
    names = list(next(iter(figures["goodput"].values())))
    rows = []
    for step, goodputs in figures["goodput"].items():
        gains = figures["gains"][step]
        cells = [
            f"{value:.1%}" + (f" ({gains[name]:+.1%})" if name in gains else "")
            for name, value in goodputs.items()
        ]
        rows.append([f"**{step} (default)**" if step == figures["default"] else step, *cells])
    lines = [
        "# What the limits of a real GPU cost the peers",
        "",
        f"`{made_by}`. Workloads: {', '.join(figures['workloads'])}; traces: {figures['traces']}. "
        "Mean goodput of received, migrator's gain in brackets; every line has one limit more than "
        "the line before ([peers](../peers.md)). `paris-reconfiguring` is PARIS as the paper runs "
        "it, `paris` its static form; both use MIG, so that only the last line concerns them.",
        "",
        *table(["limits", *names], rows),
    ]
    return "\n".join([*lines, ""])


def main() -> None:
    """Run every step and write the page."""
    arguments = options((__doc__ or "").splitlines()[0]).parse_args()
    setting = setting_of(arguments)
    all_figures = figures(setting, outcomes_of(jobs(setting), setting, arguments))
    all_figures["command"] = command("ladder", arguments, setting)
    page = text(all_figures, all_figures["command"])
    (arguments.out / "ladder.md").write_text(page, encoding="utf-8")
    (arguments.out / "ladder.json").write_text(
        json.dumps(all_figures, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
