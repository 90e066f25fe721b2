"""What the router records of every batch, in virtual time."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from support.stand_in_worker import StandInWorker, infer
from support.virtual_time import run_virtually

from migrator.core.batch import Batch, BatchKind
from migrator.serving.queue import QueueSettings
from migrator.serving.router import Router

ROW = np.zeros((1, 2), np.uint8)


def test_every_batch_is_recorded_with_its_slices_and_its_times() -> None:
    recorded = run_virtually(_recorded())
    own = [batch for batch in recorded if batch.kind is BatchKind.OWN]
    assert [(batch.tenant, batch.place, batch.rows, batch.waiting) for batch in own] == [
        ("u", "1g@1", 1, 0),
        ("t", "1g@0", 1, 0),
        ("t", "1g@0", 3, 0),
    ]
    # the last batch waited for the first, whose time is over
    began_s = own[0].came_s
    assert own[-1].came_s == pytest.approx(began_s + 0.05)
    assert own[-1].taken_s == pytest.approx(began_s + 0.5)
    assert own[-1].answered_s == pytest.approx(began_s + 1.0)
    assert [batch.in_time for batch in own] == [1, 1, 0]
    [lent] = [batch for batch in recorded if batch.kind is BatchKind.LENT]
    assert (lent.place, lent.rows, lent.waiting, lent.in_time) == ("1g@1", 4, 3, 4)
    assert lent.taken_s == pytest.approx(began_s + 0.3)
    [evaluation] = [batch for batch in recorded if batch.kind is BatchKind.EVALUATION]
    assert (evaluation.tenant, evaluation.rows, evaluation.in_time) == ("t", 3, 0)
    for batch in recorded:
        assert batch.came_s <= batch.taken_s <= batch.sent_s <= batch.began_s
        assert batch.began_s <= batch.ended_s <= batch.answered_s


async def _recorded() -> list[Batch]:
    recorded: list[Batch] = []
    clock = asyncio.get_running_loop().time
    queues = {"t": QueueSettings("t", 0.9, 4), "u": QueueSettings("u", 1.0, 4)}
    router = Router(queues, clock=clock)
    router.record = recorded.append
    own, standby = StandInWorker("own", lambda _: 0.5), StandInWorker("standby", lambda _: 0.1)
    other = StandInWorker("other", lambda _: 0.3)
    # expected to be faster than it is, so that its second batch is late
    router.attach("t", own, lambda _: 0.3, place="1g@0")
    router.attach("u", other, other.latency_s, place="1g@1")
    router.attach(
        "t",
        standby,
        standby.latency_s,
        may_borrow=lambda: router.is_idle(other),
        place="1g@1",
    )
    sent = [asyncio.create_task(infer(router, name, ROW)) for name in "tu"]
    await asyncio.sleep(0.05)
    sent += [asyncio.create_task(infer(router, "t", ROW)) for _ in range(7)]
    await asyncio.gather(*sent)
    await router.infer_when_idle("t", np.repeat(ROW, 3, axis=0), 1.0)
    return recorded
