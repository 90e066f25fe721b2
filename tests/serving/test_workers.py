"""Workers as real processes: prepared, taking an instance, serving, swapped, released."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import PYTHONPATH
from support.detector_model import Detector, Picky, scenes
from support.served_models import SLOW
from support.serving import (
    OBEDIENT,
    assignment,
    children,
    pictures,
    started,
)
from support.waiting import until_async

from migrator.core.catalogue import Place, board
from migrator.core.errors import InputError
from migrator.core.tensors import TensorSpec
from migrator.gpu.drivers.base import InUseError
from migrator.gpu.drivers.virtual_board import EmulatedDriver
from migrator.io.processes import is_running
from migrator.serving.queue import QueueSettings
from migrator.serving.router import Router
from migrator.serving.workers.forkserver_process import build_all
from migrator.serving.workers.messages import ModelFaultError, ModelSpec, WorkerLostError
from migrator.serving.workers.pool import Workers


async def test_take_infer_release(workers: Workers, tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.write_text("7", encoding="utf-8")
    worker = await workers.take(assignment(weights=weights, version=5))
    batch = np.full((3, 3, 4, 4), 2, np.uint8)
    answer = await worker.infer(batch)
    np.testing.assert_array_equal(answer.scores, np.full((3, 3), 9, np.float32))
    assert answer.scores.dtype == np.float32
    assert answer.version == 5
    assert is_running(worker.pid)
    assert set(worker.parts_s) == {"load_s", "context_s", "copy_s", "first_s", "total"}
    await worker.release()
    assert not is_running(worker.pid)
    with pytest.raises(WorkerLostError, match="released"):
        await worker.infer(batch)


async def test_prepared_workers_wait_and_are_replaced(workers: Workers) -> None:
    assert workers.prepared("a") == 0
    forkserver = workers.forkserver.pid or 0
    before = children(forkserver)
    await workers.prepare("a", 2)
    waiting = children(forkserver) - before
    assert (workers.prepared("a"), len(waiting)) == (2, 2)
    worker = await workers.take(assignment())
    assert worker.pid in waiting
    await until_async(lambda: workers.prepared("a") == 2)
    assert len(children(forkserver) - before) == 3
    os.kill((waiting - {worker.pid}).pop(), 9)
    await until_async(lambda: workers.prepared("a") == 1)
    await until_async(lambda: workers.prepared("a") == 2)
    await workers.prepare("a", 0)
    assert children(forkserver) - before == {worker.pid}


async def test_weights_are_loaded_and_swapped_between_batches(
    workers: Workers, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("10", encoding="utf-8")
    second.write_text("20", encoding="utf-8")
    worker = await workers.take(assignment(weights=first, version=1))
    assert (await worker.infer(pictures())).scores[1, 0] == 10
    running = asyncio.create_task(worker.infer(pictures(SLOW)))
    await asyncio.sleep(0)  # the batch is on its way before the weights are
    assert await worker.swap(second, 2) > 0
    before, after = await running, await worker.infer(pictures())
    assert (before.version, before.scores[1, 0]) == (1, 10)
    assert (after.version, after.scores[1, 0]) == (2, 20)
    assert (worker.assignment.version, worker.assignment.weights) == (2, second)


async def test_weights_that_cannot_be_used_leave_the_old_ones_serving(
    workers: Workers, tmp_path: Path
) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text("10", encoding="utf-8")
    before = children(workers.forkserver.pid or 0)
    worker = await workers.take(assignment(weights=good))
    for written in (None, "no number", "nan"):
        if written is not None:
            bad.write_text(written, encoding="utf-8")
        with pytest.raises(InputError):
            await worker.swap(bad, 2)
        answer = await worker.infer(pictures())
        assert (answer.version, answer.scores[1, 0]) == (1, 10)
        with pytest.raises(InputError):
            await workers.take(assignment(weights=bad))
    assert children(workers.forkserver.pid or 0) - before == {worker.pid}


async def test_every_batch_has_its_own_answer_also_after_one_nobody_waits_for(
    workers: Workers,
) -> None:
    worker = await workers.take(assignment())
    batches = [np.full((n, 3, 60, 60), n, np.uint8) for n in (1, 2, 40)]
    answers = await asyncio.gather(*map(worker.infer, batches))
    assert [len(answer.scores) for answer in answers] == [1, 2, 40]
    assert [answer.scores[0, 0] for answer in answers] == [1, 2, 40]
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(worker.infer(pictures(SLOW)), 0.05)
    later = np.full((1, 3, 4, 4), 7, np.uint8)
    assert (await worker.infer(later)).scores[0, 0] == 7


async def test_an_emulated_batch_takes_as_long_as_was_measured(workers: Workers) -> None:
    worker = await workers.take(assignment(latency_ms={1: 20.0, 4: 50.0}))
    for batch, least_s in [(1, 0.02), (2, 0.05), (4, 0.05), (6, 0.05)]:
        began_s = time.perf_counter()
        await worker.infer(pictures(batch=batch))
        assert time.perf_counter() - began_s >= least_s


async def test_a_worker_holds_its_instance_until_it_is_released(
    workers: Workers, tmp_path: Path
) -> None:
    driver = EmulatedDriver(tmp_path, board=board("A100-40GB"), pace=0)
    instance = driver.create(Place(0, "3g.20gb"))
    worker = await workers.take(assignment(environment=driver.environment(instance)))
    assert [holder.pid for holder in driver.instances()[0].holders] == [worker.pid]
    with pytest.raises(InUseError):
        driver.destroy(instance)
    await worker.release()
    environment = driver.environment(instance)
    driver.destroy(instance)
    with pytest.raises(WorkerLostError, match="no such instance"):
        await workers.take(assignment(environment=environment))


async def test_workers_get_no_secrets_and_no_sockets_of_the_daemon(workers: Workers) -> None:
    assert os.environ["MIGRATOR_ADMIN_TOKEN"] == "hush"
    await workers.prepare("a", 1)
    worker = await workers.take(assignment())
    # the forkserver has one more, on which it gets the workers' sockets
    for pid, sockets in ((worker.pid, 1), (workers.forkserver.pid, 2)):
        variables = Path(f"/proc/{pid}/environ").read_text(encoding="utf-8")
        assert "PATH=" in variables
        assert "hush" not in variables
        opened = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()]
        assert len([path for path in opened if path.startswith("socket:")]) == sockets
    assert workers.log.parent.stat().st_mode & 0o777 == 0o700
    assert workers.log.stat().st_mode & 0o777 == 0o600


async def test_what_is_not_known_is_refused(workers: Workers) -> None:
    with pytest.raises(InputError, match="name one of a"):
        await workers.take(assignment(tenant="b"))
    with pytest.raises(InputError, match="small-cnn"):
        await workers.take(assignment("small-cnn"))
    with pytest.raises(InputError, match="name one of a"):
        await workers.prepare("b", 1)


async def test_a_model_that_cannot_be_built_is_named_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    wrong = ModelSpec("support.served_models:Unbuildable", 3)
    workers = Workers(tmp_path / "run", {"b": ModelSpec(OBEDIENT, 3), "a": wrong})
    with pytest.raises(InputError, match=r"no 3 classes with seed 0.*correct the class"):
        await workers.start()
    await workers.close()


def test_a_model_that_cannot_be_imported_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "raising_model.py").write_text("raise OSError('not today')", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for model, said in (
        ("support.served_models:Missing", "has no Missing"),
        ("raising_model:Model", r"importing raising_model failed.*not today"),
    ):
        with pytest.raises(InputError, match=said):
            build_all({"a": ModelSpec(model, 3)})


async def test_a_worker_judges_and_goes_on_where_the_model_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    name, samples = f"{Picky.__module__}:Picky", scenes(8, 0)
    labels: Any = samples.labels  # records
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
