"""Workers with models on torch: built once, forked, weights as safetensors."""

from __future__ import annotations

import asyncio
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import PYTHONPATH
from support.serving import assignment
from support.small_models import WORDS, save_bert, save_vit
from support.tiny_model import SIDE, Tiny

from migrator.core.errors import InputError
from migrator.learn.registry import build, model_class
from migrator.serving.workers.forkserver_process import build_all
from migrator.serving.workers.messages import ModelInterface, ModelSpec
from migrator.serving.workers.pool import Workers

TINY = "support.tiny_model:Tiny"


async def test_forked_workers_answer_as_the_model_itself_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    first, second, damaged = (tmp_path / f"{name}.safetensors" for name in ("1", "2", "damaged"))
    ours = Tiny.build(3, 1)
    ours.save(first)
    batch = np.random.default_rng(0).integers(0, 256, (5, 3, SIDE, SIDE), np.uint8)
    expected = [ours.infer(batch)]
    ours.train_step(batch, np.array([0, 1, 2, 0, 1]), 0.01)
    ours.save(second)
    expected.append(ours.infer(batch))
    damaged.write_bytes(second.read_bytes()[:-100])
    models = {
        "a": ModelSpec(TINY, 3),
        "b": ModelSpec("small-cnn", 4, pixels=16),
        "c": ModelSpec("small-cnn", 4, pixels=32, input_pixels=16),
    }
    workers = Workers(tmp_path / "run", models)
    try:
        await workers.start()
        # a process that forks with more than one thread may leave a lock behind for ever
        assert len(list(Path(f"/proc/{workers.forkserver.pid}/task").iterdir())) == 1
        assert workers.interfaces["b"] == ModelInterface("b", "UINT8", (3, 16, 16), 4)
        assert workers.interfaces["c"] == ModelInterface("c", "UINT8", (3, 16, 16), 4)
        await asyncio.gather(
            *(workers.prepare(model, 2 if model == "a" else 1) for model in models)
        )
        worker = await workers.take(assignment(TINY, weights=first, version=1))
        two = await workers.take(assignment(TINY, weights=first, version=1))
        np.testing.assert_allclose((await worker.infer(batch)).scores, expected[0], rtol=1e-5)
        await worker.swap(second, 2)
        with pytest.raises(InputError, match="damaged"):
            await two.swap(damaged, 2)
        swapped, old = await asyncio.gather(worker.infer(batch), two.infer(batch))
        assert (swapped.version, old.version) == (2, 1)
        np.testing.assert_allclose(swapped.scores, expected[1], rtol=1e-5)
        np.testing.assert_allclose(old.scores, expected[0], rtol=1e-5)
        other = await workers.take(assignment("small-cnn", tenant="b"))
        pictures = np.zeros((2, 3, 16, 16), np.uint8)
        assert (await other.infer(pictures)).scores.shape == (2, 4)
        assert os.getpid() not in (worker.pid, two.pid, other.pid)
        # clients may send smaller images than the network reads
        smaller, images = build("small-cnn", 4, 0, 32), batch[:2, :, :16, :16]
        resizing = await workers.take(assignment("small-cnn", tenant="c"))
        scores = (await resizing.infer(images)).scores
        np.testing.assert_allclose(scores, smaller.infer(images), rtol=1e-5)
    finally:
        await workers.close()


def test_weights_with_another_head_are_refused_before_anything_is_served(tmp_path: Path) -> None:
    model = build("small-cnn", 5, 0, 16)
    model.save(tmp_path / "five.safetensors")
    spec = ModelSpec("small-cnn", 4, 16, weights=tmp_path / "five.safetensors")
    with pytest.raises(InputError, match="its head is not for the 4 classes of the model"):
        build_all({"a": spec})


async def test_models_of_libraries_are_forked_with_their_weights(tmp_path: Path) -> None:
    vit, bert = tmp_path / "vit", tmp_path / "bert"
    save_vit(vit)
    save_bert(bert)
    names = {"a": f"hf:{vit}", "b": f"hf:{bert}", "c": "timm:test_vit2"}
    installed = {key: name for key, name in names.items() if key != "c" or find_spec("timm")}
    specs = {key: ModelSpec(name, 3) for key, name in installed.items()}
    workers = Workers(tmp_path / "run", specs)
    try:
        await workers.start()
        assert len(list(Path(f"/proc/{workers.forkserver.pid}/task").iterdir())) == 1
        served = workers.interfaces["b"]
        path, padding = str(bert / "tokenizer.json"), WORDS.index("[PAD]")
        assert served == ModelInterface("b", "INT32", (64,), 3, len(WORDS), path, padding)
        encode = served.encode
        assert encode is not None
        theirs: Any = model_class(f"hf:{bert}")
        texts = ["the cats", "dogs " * 100, "", "unheard of"]
        assert encode(texts).tolist() == theirs.encode(texts).tolist()
        for tenant, name in installed.items():
            ours = build(name, 3, 0)
            batch = ours.example(2)
            await workers.prepare(tenant, 1)
            worker = await workers.take(assignment(name, tenant=tenant))
            scores = (await worker.infer(batch)).scores
            np.testing.assert_allclose(scores, ours.infer(batch), rtol=1e-4, atol=1e-5)
    finally:
        await workers.close()
