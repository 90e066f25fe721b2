"""The paper's main result: goodput of the 16 workloads under every policy."""

from __future__ import annotations

from dataclasses import dataclass

from migrator.report.page import Bars, Note, Section, Table
from migrator.reproduce import conditions
from migrator.reproduce.charts import grouped_bars, shares_table
from migrator.reproduce.evaluation import PAPERS_PEERS, Evaluation, Measured
from migrator.reproduce.experiment import Figures, Outcomes, Setting
from migrator.reproduce.words import DIFFERS, PAPER, cell, listed, percent, points, signed
from migrator.simulate.compare import Job

OURS, BOUND = "migrator", "oracle"
FIGURE = (OURS, *PAPERS_PEERS, BOUND)
"""What the figure shows; the table has everybody."""
POLICIES = (
    *FIGURE,
    *("migrator-paper", "paris-reconfiguring", "gpulet", "infless", "miso"),
    *("equal-mig", "equal-mps", "unpartitioned"),
)
REPORTED = {"ekya": 0.17, "astraea": 0.21, "paris": 0.20}
"""Peer -> by which part the paper's goodput is higher."""

EVALUATION = Evaluation(POLICIES)


@dataclass(frozen=True)
class Goodput:
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
        found = conditions.found(setting, outcomes)
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
            **conditions.found(setting, outcomes).figures(),
        }


def gain(measured: Measured, peer: str) -> float:
    """By which part migrator's mean goodput is higher than a peer's."""
    return measured.gain(OURS, peer)


def gains_table(measured: Measured, reported: dict[str, float] | None) -> Table:
    """migrator against the paper's peers, and beside it what the paper says."""
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


def _figure(measured: Measured) -> Bars:
    return grouped_bars("Goodput over received", measured, FIGURE, "goodput")


def _ranking(measured: Measured) -> Table:
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


def _differs(measured: Measured, found: conditions.Found) -> tuple[str, ...]:
    gains = listed(f"{signed(gain(measured, peer))} over {peer}" for peer in PAPERS_PEERS)
    behind = [
        each
        for each in measured.workloads
        if any(
            measured.of(each, peer).goodput_share.mean > measured.of(each, OURS).goodput_share.mean
            for peer in PAPERS_PEERS
        )
    ]
    won = (
        f"On {listed(behind)} one of the paper's peers is ahead."
        if behind
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


EXPERIMENTS = (Goodput(),)
