"""Evaluates the serving models on new labels, on their workers, whatever the policy.

Labels of answers show how accurate a model is. Samples that are uploaded with their labels have no
answer yet, so the serving workers answer some of them.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from migrator.control.tenant_state import FEWEST_LABELS
from migrator.core.errors import MigratorError
from migrator.live.context import Context
from migrator.live.recorder import LiveRecorder
from migrator.live.training_data import held_out_samples

MOST_SAMPLES = 256
"""Samples of one evaluation: its standard error is at most 3 points."""
_GROWTH = 1.25
"""Factor by which labels must have grown for another evaluation of the same model."""
_AHEAD, _MOST_AHEAD_S = 0.35, 30.0
"""Share of a window before its end from which its labels are used, and its maximum in seconds."""
_PATIENCE_S = 0.25
"""Seconds that each batch of an evaluation waits for an idle worker. Then it is answered before
other requests: a tenant with more of them than it can answer has no idle worker."""
_AGAIN_S = 5.0
"""Seconds between two evaluations of a tenant."""
_CHANGED = 0.02
"""Difference of the accuracy from which a new plan is asked for."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DueEvaluation:
    """The serving model of a tenant is to be evaluated on the labels up to a window."""

    tenant: str
    window: int
    version: int
    labelled: int
    """Labels of that window."""


class Evaluations:
    """Finds out which models are to be evaluated, and evaluates them."""

    def __init__(
        self, context: Context, recorder: LiveRecorder, request_plan: Callable[[str], None]
    ) -> None:
        self._context, self._recorder, self._request_plan = context, recorder, request_plan
        self._last: dict[str, DueEvaluation] = {}
        self._not_before_s: dict[str, float] = {}
        """By tenant; infinite while one runs."""

    def due(self) -> Iterator[DueEvaluation]:
        """Yield evaluations on new labels, or of new models, and note that they begin."""
        clock, labels = self._context.clock, self._context.labels
        left_s = clock.window_s - clock.into_s
        ahead = left_s <= min(_MOST_AHEAD_S, _AHEAD * clock.window_s)
        window = clock.number if ahead else clock.number - 1
        for name, tenant in self._context.tenants.items():
            version, now_s = tenant.version, clock.now_s()
            busy = now_s < self._not_before_s.get(name, 0.0)
            if busy or version is None or tenant.drained or window < tenant.model.since:
                continue
            if labels.accuracy(name, window, FEWEST_LABELS) is not None:
                continue  # its answers are labelled
            labelled, last = labels.kept(name, window, window + 1), self._last.get(name)
            fewest = FEWEST_LABELS
            if last is not None and (last.window, last.version) == (window, version.number):
                fewest = max(fewest, round(_GROWTH * last.labelled))
            if labelled >= fewest:
                self._not_before_s[name] = math.inf
                yield DueEvaluation(name, window, version.number, labelled)

    async def evaluate(self, wanted: DueEvaluation) -> None:
        """Evaluate a model; request a plan if the accuracy that plans use changes noticeably."""
        name, clock = wanted.tenant, self._context.clock
        try:
            accuracy = await self._accuracy(wanted)
        except MigratorError as error:
            _log.warning("%s: its model could not be evaluated: %s", name, error)
            accuracy = None
        finally:
            self._not_before_s[name] = clock.now_s() + _AGAIN_S
        tenant = self._context.tenants.get(name)
        if accuracy is None or tenant is None:
            return
        self._last[name] = wanted
        version, before = tenant.version, tenant.accuracy
        if version is None or version.number != wanted.version:
            return
        taken = tenant.take_evaluation(accuracy, wanted.window, version)
        if abs(accuracy - before) >= _CHANGED:
            text = f"{name}: accuracy {accuracy:.3f} on new labels, {before:.3f} before"
            self._recorder.event("accuracy", text, tenant=name, version=version.number)
            if taken:
                self._request_plan(f"{name} was evaluated on new labels")

    async def _accuracy(self, wanted: DueEvaluation) -> float | None:
        """The share of correct answers; None without samples, without a worker, or if another
        version answered."""
        name, labels = wanted.tenant, self._context.labels
        live, state = self._context.live_tenants[name], self._context.tenants[name]
        samples = await asyncio.to_thread(
            held_out_samples,
            labels.path,
            name,
            wanted.window,
            since=state.model.since,
            held_out=live.held_out,
            most=MOST_SAMPLES,
        )
        if samples is None:
            self._last[name] = wanted  # there are none until more labels come
            return None
        correct, batch = 0, state.service.batch
        for first in range(0, len(samples), batch):
            part = slice(first, first + batch)
            answered = await self._context.router.infer_when_idle(
                name, samples.inputs[part], _PATIENCE_S
            )
            if answered is None or answered.version != wanted.version:
                return None
            labels_of_part = samples.labels[part]
            if self._context.offered[name].judges:
                judged = await self._context.router.judge(name, answered.scores, labels_of_part)
                if judged is None:
                    return None
            else:
                judged = (answered.scores.argmax(axis=1) == labels_of_part).tolist()
            correct += sum(judged)
        return correct / len(samples)
