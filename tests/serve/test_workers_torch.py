"""Workers with models on torch: built once, forked, weights as safetensors."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import numpy as np
import pytest
from support.serving import assignment, in_loop
from support.tiny_model import SIDE, Tiny

from migrator.core.errors import InputError
from migrator.serve.workers.messages import InputKind, ModelSpec
from migrator.serve.workers.pool import Workers

TINY = "support.tiny_model:Tiny"


@in_loop
async def test_forked_workers_answer_as_the_model_itself_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent))
    first, second, damaged = (tmp_path / f"{each}.safetensors" for each in ("1", "2", "damaged"))
    ours = Tiny.build(3, 1)
    ours.save(first)
    batch = np.random.default_rng(0).integers(0, 256, (5, 3, SIDE, SIDE), np.uint8)
    expected = [ours.infer(batch)]
    ours.train_step(batch, np.array([0, 1, 2, 0, 1]), 0.01)
    ours.save(second)
    expected.append(ours.infer(batch))
    damaged.write_bytes(second.read_bytes()[:-100])
    models = {"a": ModelSpec(TINY, 3), "b": ModelSpec("small-cnn", 4, pixels=16)}
    workers = Workers(tmp_path / "run", models)
    try:
        await workers.start()
        # a process that forks with more than one thread may leave a lock behind for ever
        assert len(list(Path(f"/proc/{workers.forkserver.pid}/task").iterdir())) == 1
        assert workers.inputs["b"] == InputKind("UINT8", (3, 16, 16), 256)
        await asyncio.gather(workers.prepare("a", 2), workers.prepare("b", 1))
        one = await workers.take(assignment(TINY, weights=first, version=1))
        two = await workers.take(assignment(TINY, weights=first, version=1))
        np.testing.assert_allclose((await one.infer(batch)).scores, expected[0], rtol=1e-5)
        await one.swap(second, 2)
        with pytest.raises(InputError, match="damaged"):
            await two.swap(damaged, 2)
        swapped, old = await asyncio.gather(one.infer(batch), two.infer(batch))
        assert (swapped.version, old.version) == (2, 1)
        np.testing.assert_allclose(swapped.scores, expected[1], rtol=1e-5)
        np.testing.assert_allclose(old.scores, expected[0], rtol=1e-5)
        other = await workers.take(assignment("small-cnn", tenant="b"))
        pictures = np.zeros((2, 3, 16, 16), np.uint8)
        assert (await other.infer(pictures)).scores.shape == (2, 4)
        assert os.getpid() not in (one.pid, two.pid, other.pid)
    finally:
        await workers.close()
