"""What the MPS peers gain and lose: python -m benchmarks.conditions [--workloads W1,W8].

The workloads on NC-CIFAR-10 under other conditions: the SMs of seven 1g instances, no
interference, cold workers. Writes conditions.md and conditions.json. Loads and gains of
retraining are varied by the map (benchmarks/map.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from benchmarks.runs import command, options, outcomes_of, setting_of, table
from migrator.core.catalogue import Board, board
from migrator.core.comparison import summarise
from migrator.core.profiles import Service, profile
from migrator.core.scenario import PeerLimits, Scenario, ServedTenant
from migrator.policies.mps_workers import capability_rps, sms_of
from migrator.reproduce.evaluation import SHORT, Evaluation, PolicyResults
from migrator.reproduce.experiment import Outcomes, Setting, points
from migrator.reproduce.sources import WorkloadSource
from migrator.simulation.compare import SimulationJob
from migrator.workload.workloads import GPU, LOAD, SLO_MS, workloads

Figures = dict[str, Any]
MPS_PEERS = ("ekya", "astraea")
AS_RUN, COLD = "as run", "cold workers"
HALF_PERCENT = 50.0
"""Percent of the SMs on which numbers of processes are compared."""


class Supposition(StrEnum):
    """Assumptions that no run of the paper's evaluation makes, to measure their effect."""

    SMALL_BOARD = "MPS on the 112 SMs of seven 1g"
    NO_INTERFERENCE = "serving without interference under MPS"


@dataclass(frozen=True)
class SupposedSource:
    """A workload under a supposition."""

    source: WorkloadSource
    supposition: Supposition

    @property
    def name(self) -> str:
        """The workload's."""
        return self.source.name

    def __call__(self, seed: int | None, windows: int | None) -> Scenario:
        """Build the scenario."""
        scenario = self.source(seed, windows)
        if self.supposition is Supposition.SMALL_BOARD:
            return replace(scenario, board=_small(scenario.board))
        return replace(scenario, tenants=tuple(map(_undisturbed, scenario.tenants)))


def _small(whole: Board) -> Board:
    """The board with no more SMs in its largest instance than in all its smallest ones together."""
    sms = whole.sms_of(1) * whole.compute_slices
    profiles = (
        replace(profile, sms=sms) if profile.gpcs == whole.sizes[-1] else profile
        for profile in whole.profiles
    )
    return replace(whole, profiles=tuple(profiles))


def _undisturbed(tenant: ServedTenant) -> ServedTenant:
    undisturbed = replace(tenant.service.profile, interference=0.0)
    return replace(tenant, service=replace(tenant.service, profile=undisturbed))


@dataclass(frozen=True)
class Condition:
    """The workloads under one condition."""

    evaluation: Evaluation
    supposition: Supposition | None = None

    def jobs(self, setting: Setting) -> tuple[SimulationJob, ...]:
        """A run per workload, policy and seed."""
        jobs = self.evaluation.jobs(setting)
        if self.supposition is None:
            return jobs
        return tuple(
            replace(job, source=SupposedSource(job.source, self.supposition))
            for job in jobs
            if isinstance(job.source, WorkloadSource)
        )

    def measured(self, setting: Setting, outcomes: Outcomes) -> PolicyResults:
        """Summarise the outcomes of these runs."""
        runs = (outcomes[job] for job in self.jobs(setting))
        return PolicyResults(self.evaluation.chosen(setting), summarise(runs))


def of_mps_peers() -> dict[str, Condition]:
    """Name -> condition for the peers that share the GPU with MPS."""
    as_run = Evaluation(MPS_PEERS, SHORT)
    return {
        AS_RUN: Condition(as_run),
        COLD: Condition(Evaluation(MPS_PEERS, SHORT, prepared=False)),
        **{str(supposition): Condition(as_run, supposition) for supposition in Supposition},
    }


def jobs(setting: Setting) -> tuple[SimulationJob, ...]:
    """A run per condition, workload, policy and seed."""
    return tuple(job for condition in of_mps_peers().values() for job in condition.jobs(setting))


def figures(setting: Setting, outcomes: Outcomes) -> Figures:
    """Goodput by condition."""
    peers = {
        name: condition.measured(setting, outcomes) for name, condition in of_mps_peers().items()
    }
    return {
        "workloads": list(Evaluation((), SHORT).chosen(setting)),
        "traces": "generated" if setting.data is None else "real",
        "mps_peers_by_condition": {
            name: {peer: results.goodput(peer) for peer in MPS_PEERS}
            for name, results in peers.items()
        },
        "processes_gain_on_half_the_sms": processes_gain(),
    }


def processes_gain() -> dict[str, float]:
    """Model -> requests that several processes answer on half of the SMs, over those of one."""
    gpu = board(GPU)
    models = dict.fromkeys(model for workload in workloads().values() for model in workload.models)
    services = [Service(model, profile(model, GPU), SLO_MS / 1e3, 1) for model in models]
    return {
        service.tenant: capability_rps(service, gpu, HALF_PERCENT, PeerLimits())
        / service.capability_rps(sms_of(gpu, HALF_PERCENT))
        for service in services
    }


def text(figures: Figures, made_by: str) -> str:
    """The page."""
    lines = [
        "# What the MPS peers gain and lose",
        "",
        f"`{made_by}`. Workloads: {', '.join(figures['workloads'])}; traces: {figures['traces']}. "
        f"Load {LOAD:g}.",
        "",
        "Goodput of the MPS peers, in brackets the change in points. MPS has all 132 SMs of an "
        "H200, seven 1g instances have 112; with waiting workers a new process starts beside the "
        "old one, which serves on until then.",
        "",
        *table(["condition", *MPS_PEERS], list(_peer_rows(figures["mps_peers_by_condition"]))),
        "",
        *condition_sentences(figures["mps_peers_by_condition"]),
        "",
        *process_sentences(figures["processes_gain_on_half_the_sms"]),
    ]
    return "\n".join([*lines, ""])


def _peer_rows(goodputs: dict[str, dict[str, float]]) -> Iterator[list[str]]:
    for name, row in goodputs.items():
        changes = (points(row[peer] - goodputs[AS_RUN][peer]) for peer in MPS_PEERS)
        yield [
            name,
            *(
                f"{row[peer]:.1%} ({change})"
                for peer, change in zip(MPS_PEERS, changes, strict=True)
            ),
        ]


def condition_sentences(goodputs: dict[str, dict[str, float]]) -> Iterator[str]:
    """The condition that matters most to each peer."""
    for peer in MPS_PEERS:
        changes = {
            name: row[peer] - goodputs[AS_RUN][peer]
            for name, row in goodputs.items()
            if name != AS_RUN
        }
        most = max(changes, key=lambda name: abs(changes[name]))
        if round(100 * changes[most], 1) == 0:
            yield f"None of them changes {peer} by a tenth of a point."
        else:
            yield f"What changes {peer} most: {most} ({points(changes[most])} points)."


def process_sentences(gains: dict[str, float]) -> Iterator[str]:
    """What several processes on one share bring, which the peers use."""
    yield (
        "Each MPS share is served by as many processes as answer most requests. On half of the "
        f"SMs, at batch 1, they answer {min(gains.values()):.1f} to {max(gains.values()):.1f} "
        "times as many as one process (from the profiles)."
    )


def main() -> None:
    """Run every condition; write the page and its figures."""
    arguments = options((__doc__ or "").splitlines()[0]).parse_args()
    setting = setting_of(arguments)
    all_figures = figures(setting, outcomes_of(jobs(setting), setting, arguments))
    page = text(all_figures, command("conditions", arguments, setting))
    (arguments.out / "conditions.md").write_text(page, encoding="utf-8")
    (arguments.out / "conditions.json").write_text(
        json.dumps(all_figures, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
