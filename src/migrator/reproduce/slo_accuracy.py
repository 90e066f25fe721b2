"""SLO attainment and accuracy, the two factors of goodput: the runs are those of `goodput`."""

from __future__ import annotations

from migrator.report.page import Table
from migrator.reproduce.evaluation import (
    AUTO,
    MEASURES,
    PAPERS_PEERS,
    PARIS,
    Evaluation,
    PolicyResults,
    grouped_bars,
    shares_table,
)
from migrator.reproduce.experiment import (
    Experiment,
    Figures,
    Findings,
    Outcomes,
    Setting,
    points,
    signed,
    table,
)
from migrator.reproduce.goodput import BOUND, FIGURE, OURS

REPORTED_SLO = {
    "SLO attainment": {"ekya": "+17%", "astraea": "+6%", PARIS: "+13%"},
    "accuracy": {"ekya": "similar", "astraea": "+19%", PARIS: "+12%"},
}
_BY_PAPERS_DEFINITION = ("accuracy over received", REPORTED_SLO["accuracy"])
"""The paper defines accuracy as correct answers over requests received."""
EVALUATION = Evaluation(FIGURE, forecaster=AUTO)


def _findings(setting: Setting, outcomes: Outcomes) -> Findings:
    measured = EVALUATION.measured(setting, outcomes)
    return Findings(
        paragraphs=(
            "Goodput has two factors: the part of the requests answered in time (SLO attainment) "
            "and the part of those that is answered correctly (accuracy). The paper defines "
            "accuracy as correct answers over requests received, which is nearly goodput and is "
            "the table's last measure. The runs are those of the goodput experiment.",
        ),
        blocks=(
            *(
                grouped_bars(f"{name[0].upper()}{name[1:]}", measured, FIGURE, name)
                for name in REPORTED_SLO
            ),
            _differences(measured),
            *(
                shares_table(f"{name} (%) of every workload", measured, FIGURE, name, bound=BOUND)
                for name in REPORTED_SLO
            ),
        ),
        reported=(
            "SLO attainment is 17%, 6% and 13% higher than with Ekya, Astraea and PARIS; accuracy "
            "is similar to Ekya's, 19% above Astraea's and 12% above PARIS'.",
            "It explains them by decisions at the window's start and at completions only (Ekya, "
            "PARIS), by memory bandwidth that MPS leaves shared (Astraea), and by blindness to "
            "what retraining brings (Astraea, PARIS).",
        ),
        differs=(f"Ours: {_measure_gains(measured)}.",),
    )


def _figures(setting: Setting, outcomes: Outcomes) -> Figures:
    """Both measures by workload and policy, and the gains over the peers."""
    measured = EVALUATION.measured(setting, outcomes)
    return {
        name.replace(" ", "_").lower(): {
            "workloads": {
                workload: {row.policy: MEASURES[name](row).mean for row in rows}
                for workload, rows in measured.lines(FIGURE)
            },
            "average": {policy: measured.average(name, policy) for policy in FIGURE},
            "gains": {peer: _gain(measured, name, peer) for peer in PAPERS_PEERS},
            "paper_gains": REPORTED_SLO[name],
        }
        for name in REPORTED_SLO
    }


def _gain(measured: PolicyResults, name: str, peer: str) -> float:
    return measured.average(name, OURS) / measured.average(name, peer) - 1


def _differences(measured: PolicyResults) -> Table:
    rows = []
    for name, reported in (*REPORTED_SLO.items(), _BY_PAPERS_DEFINITION):
        ours = measured.average(name, OURS)
        for peer in PAPERS_PEERS:
            theirs = measured.average(name, peer)
            rows.append(
                (
                    f"{name}, over {peer}",
                    f"{100 * ours:.1f}",
                    f"{100 * theirs:.1f}",
                    points(ours - theirs),
                    signed(_gain(measured, name, peer)),
                    reported[peer],
                )
            )
    return table(
        "migrator against the paper's peers, averages over the workloads",
        ("measure", "migrator (%)", "peer (%)", "in points", "gain", "paper"),
        rows,
    )


def _measure_gains(measured: PolicyResults) -> str:
    return "; ".join(
        f"{name} "
        + ", ".join(f"{signed(_gain(measured, name, peer))} over {peer}" for peer in PAPERS_PEERS)
        for name in REPORTED_SLO
    )


SLO_ACCURACY = Experiment(
    "slo-accuracy",
    "SLO attainment and accuracy",
    EVALUATION.jobs,
    _findings,
    _figures,
)
