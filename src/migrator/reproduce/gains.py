"""migrator's gains over the other policies: table, sentence and figures of several experiments."""

from __future__ import annotations

from collections.abc import Sequence

from migrator.report.page import Table
from migrator.reproduce.evaluation import LABELS, PAPERS_PEERS, PARIS, PolicyResults
from migrator.reproduce.experiment import Figures, interval, listed, points, table

OURS, BOUND = "migrator", "oracle"
REPORTED = {"ekya": 0.17, "astraea": 0.21, PARIS: 0.20}
"""Peer -> relative gain in goodput that the paper reports."""


def goodput_figures(measured: PolicyResults, policies: Sequence[str]) -> Figures:
    """Goodput by workload and policy, averages, and migrator's gains."""
    return {
        "workloads": {
            name: {row.policy: row.goodput_share.mean for row in rows}
            for name, rows in measured.lines(policies)
        },
        "average": {policy: measured.goodput(policy) for policy in policies},
        "gains": {policy: measured.gain(OURS, policy) for policy in policies if policy != OURS},
        "half_widths": measured.half_widths(OURS, policies),
    }


def gains_table(
    measured: PolicyResults, reported: dict[str, float] | None, peers: Sequence[str]
) -> Table:
    """migrator's gains over the peers, beside the gains that the paper reports."""
    ours, number = measured.goodputs(OURS), len(measured.workloads)
    rows = []
    for peer in peers:
        theirs = measured.goodputs(peer)
        won = sum(ours[workload] > theirs[workload] for workload in measured.workloads)
        rows.append(
            (
                f"over {LABELS.get(peer, peer)}",
                interval(measured.lead(OURS, peer)),
                points(measured.goodput(OURS) - measured.goodput(peer)),
                f"{won} of {number}",
                *(_reported(reported, peer) if reported else ()),
            )
        )
    headers = ("migrator", "ours", "in points", "workloads won", *(("paper",) if reported else ()))
    caption = "Gain in goodput, average over the workloads, with 95% confidence intervals"
    return table(caption, headers, rows)


def _reported(reported: dict[str, float], peer: str) -> tuple[str]:
    return (f"{100 * reported[peer]:+.0f}%" if peer in reported else "",)


def gains_sentence(measured: PolicyResults) -> str:
    """The gains over the paper's peers, for a sentence."""
    return listed(f"{interval(measured.lead(OURS, peer))} over {peer}" for peer in PAPERS_PEERS)


def lost_workloads(measured: PolicyResults, peer: str) -> list[str]:
    """The workloads on which a peer has more goodput than migrator."""
    ours, theirs = measured.goodputs(OURS), measured.goodputs(peer)
    return [workload for workload in measured.workloads if theirs[workload] > ours[workload]]
