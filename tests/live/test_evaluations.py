"""When serving models are evaluated."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.live_context import idle_context
from support.live_daemon import samples, scenario_file

from migrator.learn.samples import Samples
from migrator.live import evaluation
from migrator.live.evaluation import Evaluations
from migrator.live.labels import Labels
from migrator.live.options import DaemonOptions
from migrator.live.recorder import LiveRecorder
from migrator.workload.live import read_live


def test_without_held_out_samples_it_waits_for_more_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking for them reads every label of the tenant."""
    monkeypatch.setattr(evaluation, "_AGAIN_S", 0.0)
    pictures, classes = samples(1, 60)
    labelled = Samples(pictures, classes, classes)

    async def evaluated() -> list[int]:
        labels = Labels(tmp_path / "labels.db")
        options = DaemonOptions(read_live(scenario_file(tmp_path, "photos")), tmp_path / "state")
        context = idle_context(options, labels=labels)
        context.live_tenants["photos"] = replace(context.live_tenants["photos"], held_out=0.0)
        context.clock.start()
        context.tenants["photos"].switch_version(SimpleNamespace(number=1, accuracy=0.9, about={}))
        evaluations = Evaluations(context, LiveRecorder(context), print)
        counts = []
        for part in (slice(0, 30), slice(30, 30), slice(30, 60)):
            await add_unanswered(labels, labelled, part)
            due = list(evaluations.due())
            counts.append(len(due))
            for wanted in due:
                await evaluations.evaluate(wanted)
        await labels.close()
        return counts

    assert asyncio.run(evaluated()) == [1, 0, 1]


async def add_unanswered(labels: Labels, labelled: Samples, part: slice) -> None:
    for number in range(*part.indices(len(labelled))):
        label = int(labelled.labels[number])
        await labels.add("photos", -1, labelled.inputs[number], label, None, f"{number}")
