"""Metrics of what changes: plans asked for and taken, reconfigurations and their parts."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from migrator.live.decisions import REASONS
from migrator.live.tallies import DONE, DROPPED, FAILED, LOST, STEPS, STOPPED, TAKEN
from migrator.live.watched import Watched
from migrator.serve.families import Values, counter, gauge, histogram


class ChangeMetrics(Collector):
    """What was decided and done."""

    def __init__(self, watched: Watched) -> None:
        self._watched, self._tallies = watched, watched.tallies

    def collect(self) -> Iterator[Metric]:
        """All families."""
        yield from self._plans()
        yield from self._last_plan()
        yield from self._steps()

    def _plans(self) -> Iterator[Metric]:
        tallies, unused = self._tallies, self._watched.unused()
        yield counter(
            "migrator_plans_asked",
            "Plans that were asked for, by reason: window and regular are routine, all others "
            "came of something that went otherwise than planned.",
            ["reason"],
            {(each,): tallies.asked[each] for each in REASONS},
        )
        yield counter(
            "migrator_plans",
            "Plans by what became of them: taken, dropped (too late for their window), lost (the "
            "policy failed, died or took too long).",
            ["outcome"],
            {
                (TAKEN,): tallies.plans[TAKEN],
                (DROPPED,): unused.get(DROPPED, 0),
                (LOST,): unused.get(LOST, 0),
            },
        )
        yield from histogram(
            "migrator_planner_seconds",
            "From the question to the plan: forecasting and planning.",
            [],
            {(): tallies.plan_s},
        )

    def _last_plan(self) -> Iterator[Metric]:
        tallies = self._tallies
        yield gauge(
            "migrator_planner_gap_ratio",
            "How far above the last plan the best one could be, as its certificate says; absent "
            "where the policy proves nothing.",
            [],
            _known(tallies.gap),
        )
        yield gauge(
            "migrator_plan_expected_goodput",
            "Requests in time and correct that the last plan expects until its window ends.",
            [],
            _known(tallies.expected),
        )
        age_s = None if tallies.taken_s is None else self._watched.clock.now_s() - tallies.taken_s
        yield gauge(
            "migrator_plan_age_seconds", "Since the last plan was taken.", [], _known(age_s)
        )

    def _steps(self) -> Iterator[Metric]:
        steps = self._tallies.steps
        yield counter(
            "migrator_reconfigurations",
            "Steps of reconfigurations by how they ended; a warm step that another plan made "
            "needless was stopped.",
            ["kind", "outcome"],
            {
                (kind, outcome): steps[kind, outcome]
                for kind in STEPS
                for outcome in (DONE, FAILED, STOPPED)
                if outcome != STOPPED or kind == "warm"
            },
        )
        yield from histogram(
            "migrator_reconfiguration_seconds",
            "What parts of a reconfiguration take; load (weights read), context (CUDA opened), "
            "copy (to the GPU) and first (answers) are what warm consists of.",
            ["part"],
            {(part,): told for part, told in self._tallies.parts.items()},
        )
        yield from histogram(
            "migrator_retraining_seconds",
            "What retrainings took that ran to their end.",
            [],
            {(): self._tallies.training_s},
        )


def _known(value: float | None) -> Values:
    return {} if value is None else {(): value}
