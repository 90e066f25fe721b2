"""Workers answer with named tensors, and decide which answers are correct."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support import PYTHONPATH
from support.detector_model import Detector, Picky, scenes
from support.serving import assignment, started

from migrator.core.tensors import TensorSpec
from migrator.serving.queue import QueueSettings
from migrator.serving.router import Router
from migrator.serving.workers.messages import ModelFaultError


async def test_a_worker_judges_and_goes_on_where_the_model_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    name, samples = f"{Picky.__module__}:Picky", scenes(8, 0)
    labels: NDArray[Any] = samples.labels
    async with started(tmp_path / "run", name) as workers:
        interface = workers.interfaces["a"]
        assert interface.judges
        assert interface.outputs == Detector.outputs
        assert interface.labels[1] == TensorSpec("visible", "BOOL")
        router = Router({"a": QueueSettings("a", 30.0, 8)})
        assert await router.judge("a", labels, labels) is None  # no worker
        worker = await workers.take(assignment(name))
        router.attach("a", worker, lambda _: 0.01)
        answer = await worker.infer(samples.inputs)
        assert answer.scores["empty"].tolist() == [False] * 7 + [True]
        judged = await router.judge("a", answer.scores, labels)
        assert judged == (False,) * 7 + (True,)
        right = answer.scores.copy()
        right["box"] = labels["place"]
        assert await router.judge("a", right, labels) == (True,) * 8
        wrong = labels.copy()
        wrong["place"] = -1.0
        with pytest.raises(ModelFaultError, match="a box outside of the picture"):
            await router.judge("a", right, wrong)
        assert np.array_equal((await worker.infer(samples.inputs)).scores, answer.scores)
        router.close()
