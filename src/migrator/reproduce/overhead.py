"""Cost of a reconfiguration, and the part of it that pre-initialization hides."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from migrator.core.problem import Charge
from migrator.core.profiles import Overhead, profile
from migrator.planning.preinitialization import Preinitialization, preinitialize
from migrator.policies.migrator import Migrator
from migrator.policies.policy import Decision, Observation, Sight
from migrator.records.outcome import RunOutcome
from migrator.report.page import Axis, Bars
from migrator.report.terminal import percent
from migrator.reproduce.evaluation import SHORT, Evaluation, PolicyResults
from migrator.reproduce.experiment import (
    PAPER_WITHOUT_PASS,
    Experiment,
    Figures,
    Findings,
    Outcomes,
    Setting,
    bars,
    points,
    table,
)
from migrator.simulation.compare import SimulationJob
from migrator.workload.workloads import GPU, workloads

REPORTED = 0.83
"""Part of the overhead that the paper's pre-initialization saves."""
WORKERS = {"cold": False, "prepared": True}
WAYS = (PAPER_WITHOUT_PASS.name, "migrator-paper", "migrator-once")
"""The paper's plan without and with its pass, and migrator's plan with survivors."""


class _Recording(Migrator):
    """migrator-paper that records the results of its pre-initialization pass."""

    def __init__(self) -> None:
        super().__init__("migrator-paper", "", Sight.FORECAST, Charge.PAPER)
        self.found: list[Preinitialization] = []

    def decide(self, observation: Observation) -> Decision:
        """Plan the rest of the window."""
        decision = super().decide(observation)
        if decision.problem is not None and decision.plan is not None:
            self.found.append(preinitialize(decision.problem, decision.plan))
        return decision


@dataclass(frozen=True)
class PassOutcome(RunOutcome):
    """A run of migrator-paper with the result of its pass for every plan."""

    passes: tuple[Preinitialization, ...] = ()


@dataclass(frozen=True)
class PassJob(SimulationJob):
    """A run of migrator-paper whose outcome includes the pass."""

    def run(self, step: Callable[[], None] = lambda: None) -> PassOutcome:
        """Run the job in this process."""
        recording = _Recording()
        outcome = SimulationJob(
            self.source, recording, self.forecaster, self.seed, self.windows
        ).run(step)
        return PassOutcome(**vars(outcome), passes=tuple(recording.found))


@dataclass(frozen=True)
class HiddenOverhead:
    """Results of the pass, summed over all plans."""

    instances: int
    overhead_s: float
    hidden_s: float
    whole: int
    """Number of new instances whose overhead is hidden completely."""

    @property
    def share(self) -> float:
        """Hidden part of the overhead; 0 if there is no overhead."""
        return self.hidden_s / self.overhead_s if self.overhead_s else 0.0


def hidden_in(passes: Iterable[Preinitialization]) -> HiddenOverhead:
    """Sum the results of several passes."""
    new = [
        preparation
        for preinitialization in passes
        for preparation in preinitialization.preparations
    ]
    return HiddenOverhead(
        len(new),
        sum(preparation.overhead_s for preparation in new),
        sum(preparation.hidden_s for preparation in new),
        sum(preparation.hidden_s >= preparation.overhead_s for preparation in new),
    )


def _findings(setting: Setting, outcomes: Outcomes) -> Findings:
    results = _results(setting, outcomes)
    return Findings(
        paragraphs=(
            "Before a new instance serves, the driver creates it, a process starts (imports "
            "libraries, builds the model on the host) and the model is loaded onto it. Two things "
            "shorten that: worker processes that wait ready, so that the start is paid in advance "
            "(prepared), and the paper's pass over a finished plan, which creates and warms an "
            "instance early where its slices are unused.",
            "The workloads on NC-CIFAR-10 (W1 to W8) with cold and with prepared workers, each "
            "under the paper's plan without the pass, with it, and under `migrator-once`, whose "
            "planner weighs by itself when to hold an instance early. All three plan once per "
            "window.",
        ),
        blocks=(
            _parts(),
            table(
                "The paper's pass over migrator-paper's plans, all workloads together",
                (
                    *("workers", "new instances", "overhead (s)"),
                    *("hidden (s)", "hidden", "wholly hidden"),
                ),
                [
                    (
                        name,
                        str(result.hidden.instances),
                        f"{result.hidden.overhead_s:,.0f}",
                        f"{result.hidden.hidden_s:,.0f}",
                        percent(result.hidden.share),
                        str(result.hidden.whole),
                    )
                    for name, result in results.items()
                ],
            ),
        ),
        reported=(
            f"Pre-initialization reduces the overhead of MIG reconfiguration by {REPORTED:.0%}.",
        ),
        differs=_differs(results),
    )


def _figures(setting: Setting, outcomes: Outcomes) -> Figures:
    """Parts per model, hidden share, goodput and losses by workers and variant."""
    return {
        "parts": {m: vars(o) for m, o in _overheads().items()},
        "prepared_saves": _saved(),
        "paper_reduction": REPORTED,
        **{
            name: {
                "new_instances": result.hidden.instances,
                "overhead_s": result.hidden.overhead_s,
                "hidden_s": result.hidden.hidden_s,
                "hidden_share": result.hidden.share,
                "goodput": {way: result.measured.goodput(way) for way in WAYS},
            }
            for name, result in _results(setting, outcomes).items()
        },
    }


def _recorded(job: SimulationJob) -> SimulationJob:
    if job.policy != "migrator-paper":
        return job
    return PassJob(job.source, job.policy, seed=job.seed, windows=job.windows)


def _evaluation(prepared: bool) -> Evaluation:
    return Evaluation(
        (PAPER_WITHOUT_PASS, "migrator-paper", "migrator-once"), SHORT, prepared=prepared
    )


@dataclass(frozen=True)
class _Result:
    measured: PolicyResults
    hidden: HiddenOverhead

    @staticmethod
    def of(setting: Setting, outcomes: Outcomes, prepared: bool) -> _Result:
        jobs = _evaluation(prepared).jobs(setting)
        runs = {job: outcomes[_recorded(job)] for job in jobs}
        passing = (run for run in runs.values() if isinstance(run, PassOutcome))
        passes = (passed for run in passing for passed in run.passes)
        return _Result(_evaluation(prepared).measured(setting, runs), hidden_in(passes))


def _results(setting: Setting, outcomes: Outcomes) -> dict[str, _Result]:
    return {name: _Result.of(setting, outcomes, worker) for name, worker in WORKERS.items()}


def _overheads() -> dict[str, Overhead]:
    models = dict.fromkeys(model for workload in workloads().values() for model in workload.models)
    return {model: profile(model, GPU).overhead for model in models}


def _saved() -> dict[str, float]:
    """Model -> share of its cold overhead that a prepared worker saves."""
    return {
        model: 1
        - overhead.total_s(mig=True, prepared=True) / overhead.total_s(mig=True, prepared=False)
        for model, overhead in _overheads().items()
    }


def _parts() -> Bars:
    parts = {"create": "create_s", "start (not when prepared)": "start_s", "load": "load_s"}
    overheads = _overheads()
    seconds = {
        name: [getattr(overhead, key) for overhead in overheads.values()]
        for name, key in parts.items()
    }
    title = "Parts of the overhead of a new instance"
    return replace(
        bars(title, overheads, seconds, Axis("model"), Axis("seconds", "s")), stacked=True
    )


def _differs(results: dict[str, _Result]) -> tuple[str, ...]:
    cold, ready = results["cold"], results["prepared"]
    saved = _saved()
    low, high = min(saved.values()), max(saved.values())
    no_pass, with_pass, ours = WAYS

    def gained(result: _Result) -> str:
        return points(result.measured.goodput(with_pass) - result.measured.goodput(no_pass))

    workers = ready.measured.goodput(ours) - cold.measured.goodput(ours)
    return (
        f"The pass hides {percent(cold.hidden.share)} of the overhead with cold workers and "
        f"{percent(ready.hidden.share)} with prepared ones; prepared workers by themselves save "
        f"{percent(low)} to {percent(high)} of it. In goodput the pass brings {gained(cold)} "
        f"points cold and {gained(ready)} prepared; prepared workers bring "
        f"migrator-once {points(workers)} points.",
        "The pass can only use unused slices, and a plan for the highest goodput leaves few. "
        "`migrator` needs no pass: it may hold an instance early where that pays.",
        f"The paper does not say how its {REPORTED:.0%} divide between processes that wait and "
        "instances created early. Here the start is the midpoint of a measured range, and loading "
        "was measured for two models.",
    )


OVERHEAD = Experiment(
    "overhead",
    "Reconfiguration overhead and pre-initialization",
    lambda setting: tuple(
        _recorded(job)
        for prepared in WORKERS.values()
        for job in _evaluation(prepared).jobs(setting)
    ),
    _findings,
    _figures,
)
