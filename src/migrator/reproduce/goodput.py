"""The paper's main result: goodput of the 16 workloads under every policy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from migrator.report.page import Bars, Block, Note, Section, Table
from migrator.reproduce import conditions
from migrator.reproduce.conditions import PLANNED, at_loads, loads_jobs
from migrator.reproduce.evaluation import (
    MEASURES,
    PAPERS_PEERS,
    Evaluation,
    PolicyResults,
    grouped_bars,
    shares_table,
)
from migrator.reproduce.experiment import (
    DIFFERS,
    PAPER,
    Figures,
    Outcomes,
    Setting,
    cell,
    listed,
    percent,
    points,
    signed,
)
from migrator.simulate.compare import Job

OURS, BOUND = "migrator", "oracle"
FIGURE = (OURS, *PAPERS_PEERS, BOUND)
"""Policies in the figure; the table has all policies."""
POLICIES = (
    *FIGURE,
    *("migrator-paper", "paris-reconfiguring", "gpulet", "infless", "miso"),
    *("equal-mig", "equal-mps", "unpartitioned"),
)
REPORTED = {"ekya": 0.17, "astraea": 0.21, "paris": 0.20}
"""Peer -> relative gain in goodput that the paper reports."""

EVALUATION = Evaluation(POLICIES)


@dataclass(frozen=True)
class GoodputExperiment:
    """Every workload under every policy."""

    name: str = "goodput"
    place: int = 4
    title: str = "Goodput of the 16 workloads"

    def jobs(self, setting: Setting) -> tuple[Job, ...]:
        """A run per workload, policy and seed."""
        return (*EVALUATION.jobs(setting), *conditions.jobs(setting))

    def section(self, setting: Setting, outcomes: Outcomes) -> Section:
        """The paper's figure, all policies' averages, and the gains."""
        measured = EVALUATION.measured(setting, outcomes)
        found = conditions.measure_conditions(setting, outcomes)
        paragraphs = (
            "How many of the requests received are answered in time and correctly? Two tenants "
            "each, batch 1, an objective of 100 ms, windows of 200 s, slots of 1 s; every policy "
            "gets the same requests. Each tenant's mean rate is 0.3 of what the whole board could "
            "answer for it, so that inference alone would keep 0.6 of the board busy.",
            "`migrator` plans on a forecast, `oracle` is the same planner with the arrivals that "
            "will come, `migrator-paper` the paper's own formulation.",
        )
        blocks = (
            _figure(measured),
            gains_table(measured, REPORTED),
            _ranking(measured),
            shares_table(
                "Goodput over received (%) of every workload, the best but the oracle set apart",
                measured,
                POLICIES,
                "goodput",
                bound=BOUND,
                folded=True,
            ),
            *found.tables(),
            Note(PAPER, _reported()),
            Note(DIFFERS, _differs(measured, found)),
        )
        return Section(self.title, self.name, paragraphs, blocks)

    def figures(self, setting: Setting, outcomes: Outcomes) -> Figures:
        """Goodput by workload and policy, averages, gains and the part of the oracle's."""
        measured = EVALUATION.measured(setting, outcomes)
        return {
            "workloads": {
                name: {row.policy: row.goodput_share.mean for row in rows}
                for name, rows in measured.lines(POLICIES)
            },
            "average": {each: measured.goodput(each) for each in POLICIES},
            "gains": {each: gain(measured, each) for each in POLICIES if each != OURS},
            "paper_gains": REPORTED,
            "share_of_oracle": measured.goodput(OURS) / measured.goodput(BOUND),
            **conditions.measure_conditions(setting, outcomes).figures(),
        }


def gain(measured: PolicyResults, peer: str) -> float:
    """Relative gain of migrator's mean goodput over a peer's."""
    return measured.gain(OURS, peer)


def gains_table(measured: PolicyResults, reported: dict[str, float] | None) -> Table:
    """Table of migrator's gains over the paper's peers, beside the gains that the paper reports."""
    rows = []
    for peer in PAPERS_PEERS:
        won = sum(
            measured.of(each, OURS).goodput_share.mean > measured.of(each, peer).goodput_share.mean
            for each in measured.workloads
        )
        ahead = measured.goodput(OURS) - measured.goodput(peer)
        said = (f"{100 * reported[peer]:+.0f}%",) if reported else ()
        rows.append(
            (
                *(f"over {peer}", signed(gain(measured, peer)), points(ahead)),
                *(f"{won} of {len(measured.workloads)}", *said),
            )
        )
    headers = ("migrator", "ours", "in points", "workloads won", *(("paper",) if reported else ()))
    return Table(
        caption="Gain in goodput, average over the workloads",
        headers=headers,
        rows=tuple(rows),
        numeric=frozenset(range(1, len(headers))),
    )


def _figure(measured: PolicyResults) -> Bars:
    return grouped_bars("Goodput over received", measured, FIGURE, "goodput")


def _ranking(measured: PolicyResults) -> Table:
    """Every policy's averages, highest goodput first."""
    rows = sorted(
        (measured.mean(each) for each in POLICIES), key=lambda row: -row.goodput_share.mean
    )
    ours = measured.goodput(OURS)
    return Table(
        caption="Averages over the workloads, highest goodput first",
        headers=(
            *("policy", "goodput (%)", "SLO (%)", "accuracy (%)"),
            *("migrator's gain", "reconfigurations", "planning (s)"),
        ),
        rows=tuple(
            (
                row.policy,
                cell(row.goodput_share),
                cell(row.slo_attainment),
                cell(row.accuracy),
                "" if row.policy == OURS else signed(ours / row.goodput_share.mean - 1),
                f"{row.reconfigurations.mean:,.0f}",
                f"{row.plan_s.mean:.2f}",
            )
            for row in rows
        ),
        numeric=frozenset(range(1, 7)),
        highlights=frozenset((at, 0) for at, row in enumerate(rows) if row.policy == OURS),
    )


def _reported() -> tuple[str, ...]:
    gains = listed(f"{100 * part:.0f}% over {peer}" for peer, part in REPORTED.items())
    return (
        f"On average MIGRator's goodput is higher by {gains}, and it is higher on every workload. "
        "Measured on an A100 (40 GB).",
    )


def _differs(measured: PolicyResults, found: conditions.ConditionResults) -> tuple[str, ...]:
    gains = listed(f"{signed(gain(measured, peer))} over {peer}" for peer in PAPERS_PEERS)
    behind = {name for peer in PAPERS_PEERS for name in lost_workloads(measured, peer)}
    lost = [each for each in measured.workloads if each in behind]
    won = (
        f"On {listed(lost)} one of the paper's peers is ahead."
        if lost
        else "It is ahead of all three on every workload."
    )
    share = measured.goodput(OURS) / measured.goodput(BOUND)
    return (
        f"Ours: {gains}. {won} The oracle's plan, with the true arrivals, is no more than "
        f"{signed(1 / share - 1)} above: migrator reaches {percent(share)} of it.",
        *found.told(),
        "Not looked into: how the peers were run for the paper (one process per share or "
        "several, with or without waiting workers), and how an A100's slices and bandwidth "
        "would change all this.",
    )


REPORTED_SLO = {
    "SLO attainment": {"ekya": "+17%", "astraea": "+6%", "paris": "+13%"},
    "accuracy": {"ekya": "similar", "astraea": "+19%", "paris": "+12%"},
}
SLO_EVALUATION = Evaluation(FIGURE)


@dataclass(frozen=True)
class SloAccuracy:
    """Both factors of goodput, per workload."""

    name: str = "slo-accuracy"
    place: int = 5
    title: str = "SLO attainment and accuracy"

    def jobs(self, setting: Setting) -> tuple[Job, ...]:
        """The runs of the `goodput` figure, and those at other loads."""
        return (*SLO_EVALUATION.jobs(setting), *loads_jobs(setting))

    def section(self, setting: Setting, outcomes: Outcomes) -> Section:
        """A figure and a table for each factor, and the differences to every peer."""
        measured = SLO_EVALUATION.measured(setting, outcomes)
        paragraphs = (
            "Goodput has two factors: the part of the requests answered in time (SLO attainment) "
            "and the part of those that is answered correctly (accuracy). The runs are those of "
            "the goodput experiment.",
        )
        blocks: tuple[Block, ...] = (
            *(
                grouped_bars(f"{name[0].upper()}{name[1:]}", measured, FIGURE, name)
                for name in REPORTED_SLO
            ),
            _differences(measured),
            *(
                shares_table(
                    f"{name} (%) of every workload",
                    measured,
                    FIGURE,
                    name,
                    bound=BOUND,
                    folded=True,
                )
                for name in REPORTED_SLO
            ),
            Note(PAPER, _slo_reported()),
            Note(DIFFERS, _slo_differs(measured, at_loads(setting, outcomes))),
        )
        return Section(self.title, self.name, paragraphs, blocks)

    def figures(self, setting: Setting, outcomes: Outcomes) -> Figures:
        """Both measures by workload and policy, and the gains over the peers."""
        measured = SLO_EVALUATION.measured(setting, outcomes)
        return {
            name.replace(" ", "_").lower(): {
                "workloads": {
                    workload: {row.policy: MEASURES[name](row).mean for row in rows}
                    for workload, rows in measured.lines(FIGURE)
                },
                "average": {each: _average(measured, name, each) for each in FIGURE},
                "gains": {each: _gain(measured, name, each) for each in PAPERS_PEERS},
                "paper_gains": REPORTED_SLO[name],
            }
            for name in REPORTED_SLO
        }


def _average(measured: PolicyResults, name: str, policy: str) -> float:
    return MEASURES[name](measured.mean(policy)).mean


def _gain(measured: PolicyResults, name: str, peer: str, ours: str = OURS) -> float:
    return _average(measured, name, ours) / _average(measured, name, peer) - 1


def _differences(measured: PolicyResults) -> Table:
    rows = []
    for name, said in REPORTED_SLO.items():
        for peer in PAPERS_PEERS:
            ahead = _average(measured, name, OURS) - _average(measured, name, peer)
            rows.append(
                (
                    f"{name}, over {peer}",
                    f"{100 * _average(measured, name, OURS):.1f}",
                    f"{100 * _average(measured, name, peer):.1f}",
                    points(ahead),
                    signed(_gain(measured, name, peer)),
                    said[peer],
                )
            )
    return Table(
        caption="migrator against the paper's peers, averages over the workloads",
        headers=("measure", "migrator (%)", "peer (%)", "in points", "gain", "paper"),
        rows=tuple(rows),
        numeric=frozenset(range(1, 6)),
    )


def _slo_reported() -> tuple[str, ...]:
    return (
        "SLO attainment is 17%, 6% and 13% higher than with Ekya, Astraea and PARIS; accuracy is "
        "similar to Ekya's, 19% above Astraea's and 12% above PARIS'.",
        "It explains them by decisions at the window's start and at completions only (Ekya, "
        "PARIS), by memory bandwidth that MPS leaves shared (Astraea), and by blindness to what "
        "retraining brings (Astraea, PARIS).",
    )


def _slo_differs(measured: PolicyResults, loads: dict[float, PolicyResults]) -> tuple[str, ...]:
    return (f"Ours: {_gains(measured, OURS)}.", *_traded(measured), _at_high_load(loads))


def _gains(measured: PolicyResults, ours: str) -> str:
    return "; ".join(
        f"{name} "
        + ", ".join(
            f"{signed(_gain(measured, name, peer, ours))} over {peer}" for peer in PAPERS_PEERS
        )
        for name in REPORTED_SLO
    )


def _traded(measured: PolicyResults) -> Iterator[str]:
    """Sentences about peers that answer more requests in time than migrator, with less accuracy."""
    for peer in PAPERS_PEERS:
        slo, accuracy = (
            _average(measured, name, OURS) - _average(measured, name, peer) for name in REPORTED_SLO
        )
        if slo < 0 < accuracy:
            yield (
                f"{peer} answers {100 * -slo:.1f} points more in time than migrator: migrator's "
                "objective is goodput, so it gives up requests for a retraining that makes the "
                f"others right, and has {100 * accuracy:.1f} points of accuracy more."
            )


def _at_high_load(loads: dict[float, PolicyResults]) -> str:
    high = max(loads)
    return (
        f"The load decides here too. At {high:g} of the board (W1 to W8, `{PLANNED}`): "
        f"{_gains(loads[high], PLANNED)}. Astraea serves first and retrains on what is left, "
        "which is less. Why the peers themselves do better than in the paper is looked into "
        "under goodput."
    )


BATCH = 4
BATCH_4_POLICIES = (OURS, *PAPERS_PEERS)
BATCH_4_EVALUATION = Evaluation(BATCH_4_POLICIES, batch=BATCH)


@dataclass(frozen=True)
class Batch4:
    """The 16 workloads with batches of up to 4."""

    name: str = "batch-4"
    place: int = 6
    title: str = "Goodput with batches of 4"

    def jobs(self, setting: Setting) -> tuple[Job, ...]:
        """A run per workload, policy and seed."""
        return BATCH_4_EVALUATION.jobs(setting)

    def section(self, setting: Setting, outcomes: Outcomes) -> Section:
        """The paper's figure, and the gains."""
        measured = BATCH_4_EVALUATION.measured(setting, outcomes)
        paragraphs = (
            f"The 16 workloads again, with batches of up to {BATCH} requests: an instance takes as "
            "many as wait, up to the batch. Rates rise with the batch, so that inference alone "
            "would again keep 0.6 of the board busy.",
        )
        blocks = (
            grouped_bars("Goodput over received, batch 4", measured, BATCH_4_POLICIES, "goodput"),
            gains_table(measured, None),
            shares_table(
                "Goodput over received (%), batch 4, the best set apart",
                measured,
                BATCH_4_POLICIES,
                "goodput",
                folded=True,
            ),
            Note(
                PAPER,
                ("MIGRator is ahead of all three on every workload; no averages are stated.",),
            ),
            Note(DIFFERS, _batch_4_differs(measured)),
        )
        return Section(self.title, self.name, paragraphs, blocks)

    def figures(self, setting: Setting, outcomes: Outcomes) -> Figures:
        """Goodput by workload and policy, averages and gains."""
        measured = BATCH_4_EVALUATION.measured(setting, outcomes)
        return {
            "workloads": {
                name: {row.policy: row.goodput_share.mean for row in rows}
                for name, rows in measured.lines(BATCH_4_POLICIES)
            },
            "average": {each: measured.goodput(each) for each in BATCH_4_POLICIES},
            "gains": {each: gain(measured, each) for each in PAPERS_PEERS},
        }


def lost_workloads(measured: PolicyResults, peer: str) -> list[str]:
    """The workloads on which a peer has more goodput than migrator."""
    return [
        each
        for each in measured.workloads
        if measured.of(each, peer).goodput_share.mean > measured.of(each, OURS).goodput_share.mean
    ]


def _batch_4_differs(measured: PolicyResults) -> tuple[str, ...]:
    gains = listed(f"{signed(gain(measured, peer))} over {peer}" for peer in PAPERS_PEERS)
    lost = [
        f"{peer} on {listed(names)}"
        for peer in PAPERS_PEERS
        if (names := lost_workloads(measured, peer))
    ]
    told = f"A peer is ahead: {'; '.join(lost)}." if lost else "No peer is ahead on any workload."
    return (
        f"Ours: {gains}. {told}",
        "The paper states no averages to hold these against. These runs are set up like those at "
        "batch 1; what was found to matter there (processes per MPS share, 132 SMs against seven "
        "times 16, the load) has not been tried one by one at batch 4.",
    )


EXPERIMENTS = (GoodputExperiment(), SloAccuracy(), Batch4())
