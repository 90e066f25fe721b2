"""Experiments on single parameters: the length of a slot, and the limits of peers one by one."""

from __future__ import annotations

from dataclasses import replace

from migrator.core.catalogue import board
from migrator.core.outcome import RunOutcome
from migrator.core.scenario import DEFAULT_LIMITS, Overlap, PeerLimits, ResizedTraining, ShareSizes
from migrator.policies.policy import Sharing, Sight
from migrator.policies.registry import policy
from migrator.report.page import Axis, Bars, Table
from migrator.reproduce.evaluation import AUTO, SHORT, Evaluation, PolicyResults
from migrator.reproduce.experiment import (
    PAPER_WITH_TRUTH,
    Experiment,
    Figures,
    Findings,
    Outcomes,
    Setting,
    bars,
    listed,
    mean,
    percent,
    points,
    signed,
    table,
)
from migrator.simulate.compare import Job
from migrator.workload.workloads import GPU

LENGTHS_S = (0.5, 1.0, 2.0, 5.0, 10.0)
FORECAST, TRUTH = "migrator-paper", PAPER_WITH_TRUTH.name
SIGHTS = {FORECAST: "on the forecast", TRUTH: "on true arrivals"}


def _slot_findings(setting: Setting, outcomes: Outcomes) -> Findings:
    found, promised = _slot_results(setting, outcomes), _promised(setting, outcomes)
    return Findings(
        paragraphs=(
            "What does it bring to change the allocation more often? The workloads on "
            "NC-CIFAR-10 (W1 to W8) with slots of 0.5 to 10 s, planned in the paper's way "
            "(`migrator-paper`), whose planner is fast enough for all of them.",
            "Once on the forecast that a run has, once with the true arrivals: the second shows "
            "what granularity brings when every second is known.",
        ),
        blocks=(
            bars(
                "Goodput against slots of 1 s, average of the workloads",
                [f"{length:g} s" for length in found],
                {
                    words: [
                        100 * (each.goodput(policy) - found[1.0].goodput(policy))
                        for each in found.values()
                    ]
                    for policy, words in SIGHTS.items()
                },
                Axis("slot length"),
                Axis("points of goodput"),
            ),
            _by_workload(found, TRUTH),
            _by_workload(found, FORECAST),
            _table(found, promised),
        ),
        reported=(
            "0.5 s has the highest goodput on every workload, 1 s comes close at a fraction of the "
            "solver's time, 10 s is clearly worse: finer slots follow the arrivals better.",
        ),
        differs=_differs(found, promised),
    )


def _slot_figures(setting: Setting, outcomes: Outcomes) -> Figures:
    """Goodput and planning seconds per window, by policy and length."""
    jobs = _evaluation(1.0).jobs(setting)
    windows = mean([job.windows or 0 for job in jobs])
    return {
        policy: {
            f"{length:g}": {
                "goodput": measured.goodput(policy),
                "plan_s_per_window": measured.mean(policy).plan_s.mean / windows,
                "workloads": measured.goodputs(policy),
            }
            for length, measured in _slot_results(setting, outcomes).items()
        }
        for policy in SIGHTS
    }


def _evaluation(length_s: float) -> Evaluation:
    return Evaluation((FORECAST, PAPER_WITH_TRUTH), SHORT, slot_s=length_s)


def _slot_results(setting: Setting, outcomes: Outcomes) -> dict[float, PolicyResults]:
    return {each: _evaluation(each).measured(setting, outcomes) for each in LENGTHS_S}


def _promised(setting: Setting, outcomes: Outcomes) -> dict[float, float]:
    """Slot length -> goodput share that plans on true arrivals predict, mean over runs."""
    shares = {}
    for length in LENGTHS_S:
        runs = [
            outcomes[job]
            for job in _evaluation(length).jobs(setting)
            if job.policy is PAPER_WITH_TRUTH
        ]
        shares[length] = mean([_promise(run) for run in runs])
    return shares


def _promise(run: RunOutcome) -> float:
    received = run.tally.received
    return sum(each.predicted or 0.0 for each in run.windows) / received if received else 0.0


def _by_workload(found: dict[float, PolicyResults], policy: str) -> Bars:
    return bars(
        f"Goodput over received by workload and slot length, {SIGHTS[policy]}",
        found[1.0].workloads,
        {f"{e:g} s": [*each.goodputs(policy).values()] for e, each in found.items()},
        Axis("workload"),
        Axis("goodput", share=True),
    )


def _table(found: dict[float, PolicyResults], promised: dict[float, float]) -> Table:
    rows = []
    for length, each in found.items():
        both = each.mean(FORECAST), each.mean(TRUTH)
        rows.append(
            (
                f"{length:g} s",
                *(f"{100 * row.goodput_share.mean:.2f}" for row in both),
                f"{100 * promised[length]:.2f}",
                *(f"{row.plan_s.mean:.2f}" for row in both),
                *(f"{row.reconfigurations.mean:,.0f}" for row in both),
            )
        )
    return table(
        "Averages over the workloads; planning and reconfigurations are of a whole run",
        (
            *("slot", "goodput, forecast (%)", "goodput, truth (%)", "planned, truth (%)"),
            *("planning, forecast (s)", "planning, truth (s)"),
            *("reconfigurations, forecast", "reconfigurations, truth"),
        ),
        rows,
        [
            (max(range(len(rows)), key=lambda at: float(rows[at][column])), column)
            for column in (1, 2)
        ],
    )


def _differs(found: dict[float, PolicyResults], promised: dict[float, float]) -> tuple[str, ...]:
    summaries = []
    for name, words in SIGHTS.items():
        by_length = {length: each.goodput(name) for length, each in found.items()}
        best = max(by_length, key=lambda length: by_length[length])
        summaries.append(
            f"{words[0].upper()}{words[1:]}, {best:g} s is best ({percent(by_length[best])}); "
            f"against 1 s, 0.5 s has {points(by_length[0.5] - by_length[1.0])} points and 10 s "
            f"{points(by_length[10.0] - by_length[1.0])}."
        )
    short, long = min(found), max(found)
    return (
        " ".join(summaries),
        "A forecast made at the window's start hardly knows single seconds: the default "
        "forecaster gives one level with a spread for the whole window. Finer slots then have "
        "little to follow. What long slots lose even so has not been looked into.",
        "With true arrivals the planner takes a slot's requests as spread evenly over it; what "
        f"bursts inside it lose is in no plan. At {long:g} s its plans "
        f"promise {percent(promised[long])} and "
        f"{percent(found[long].goodput(TRUTH))} are reached, at {short:g} s "
        f"{percent(promised[short])} and {percent(found[short].goodput(TRUTH))}.",
        _changes(found),
    )


def _changes(found: dict[float, PolicyResults]) -> str:
    """Whether finer slots lead to more reconfigurations, as the paper says."""
    short = min(found)
    often = {e: found[e].mean(TRUTH).reconfigurations.mean for e in (short, 1.0)}
    forecast = found[1.0].mean(FORECAST).reconfigurations.mean
    counts = (
        f"On true arrivals a run has {often[short]:,.0f} reconfigurations with slots of "
        f"{short:g} s and {often[1.0]:,.0f} with 1 s; on the forecast, with 1 s, {forecast:,.0f}."
    )
    if often[short] >= often[1.0]:
        return counts
    return (
        f"{counts} So the finest slots are not better by changing more often, which is the paper's "
        "reason. The whole charge of a change falls into one slot; our reading, not proven, is "
        "that in a longer slot spare capability hides part of it, so that the planner changes "
        "too readily."
    )


SLOT_LENGTH = Experiment(
    "slot-length",
    "Slots of 0.5 to 10 s",
    lambda setting: tuple(job for each in LENGTHS_S for job in _evaluation(each).jobs(setting)),
    _slot_findings,
    _slot_figures,
)


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


def _ladder_results(setting: Setting, outcomes: Outcomes) -> dict[str, dict[str, PolicyResults]]:
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
        for words, by_policy in _ladder_results(setting, outcomes).items()
    }


def _ladder_figures(setting: Setting, outcomes: Outcomes) -> Figures:
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


def _ladder_findings(setting: Setting, outcomes: Outcomes) -> Findings:
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
    NAME, "What the limits of a real GPU cost the peers", _jobs, _ladder_findings, _ladder_figures
)
