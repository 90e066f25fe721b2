"""The router in virtual time: batches, deadlines, workers that come, drain and die, floods."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.stand_in_worker import POISON, StandInWorker, infer
from support.virtual_time import run_virtually

from migrator.core.errors import HttpError, InputError, MigratorError
from migrator.serving.queue import OVERDUE_S, Counted, QueueSettings, Routed
from migrator.serving.router import Router

pytestmark = pytest.mark.usefixtures("virtual_time")
Images = NDArray[np.uint8]


def row(value: int = 0, rows: int = 1) -> Images:
    return np.full((rows, 2), value, np.uint8)


def make_router(
    *workers: StandInWorker,
    slo_s: float = 1.0,
    batch: int = 4,
    queue: int = 100,
    slowest_first: bool = False,
) -> Router:
    settings = QueueSettings("t", slo_s, batch, queue, slowest_first)
    router = Router({"t": settings}, clock=asyncio.get_running_loop().time)
    for worker in workers:
        router.attach("t", worker, worker.latency_s)
    return router


def asked(router: Router, inputs: Images, within_s: float | None = None) -> asyncio.Task[Routed]:
    deadline_s = None if within_s is None else router.clock() + within_s
    return asyncio.get_running_loop().create_task(infer(router, "t", inputs, deadline_s))


async def outcome(task: Awaitable[Routed]) -> Routed | HttpError:
    try:
        return await task
    except HttpError as refusal:
        return refusal


async def status(task: Awaitable[Routed]) -> int:
    answer = await outcome(task)
    return answer.status if isinstance(answer, HttpError) else 200


@contextmanager
def refused(status: int, words: str) -> Iterator[None]:
    with pytest.raises(HttpError, match=words) as raised:
        yield
    assert raised.value.status == status


async def test_an_answer_names_its_version_and_its_times() -> None:
    worker = StandInWorker(latency_s=lambda rows: 0.1 * rows, version=4)
    router = make_router(worker)
    routed = await infer(router, "t", row(2))
    assert routed.scores.argmax() == 2
    assert (routed.version, routed.late) == (4, False)
    assert (routed.waited_s, routed.served_s) == pytest.approx((0.0, 0.1))


async def test_what_waits_goes_together_and_each_gets_its_own_rows() -> None:
    worker = StandInWorker(latency_s=lambda _: 0.1)
    router = make_router(worker, slo_s=10.0)
    values = [(0, 1), (1, 1), (2, 2), (1, 1), (2, 1)]
    answers = await asyncio.gather(*(asked(router, row(*request)) for request in values))
    assert worker.batches == [1, 4, 1]
    labels = [answer.scores.argmax(axis=1).tolist() for answer in answers]
    assert labels == [[value] * rows for value, rows in values]


async def test_a_batch_is_only_as_large_as_the_first_deadline_allows() -> None:
    worker = StandInWorker(latency_s=lambda rows: 0.1 * rows)
    router = make_router(worker, slo_s=10.0)
    waits = [asked(router, row()), asked(router, row(), 0.35), asked(router, row())]
    await asyncio.gather(*waits, asked(router, row()))
    assert worker.batches == [1, 2, 1]


async def test_with_more_than_a_full_batch_waiting_small_ones_are_not_made() -> None:
    worker = StandInWorker(latency_s=lambda rows: 0.1 * rows)
    router = make_router(worker, slo_s=1.0)
    urgent = [asked(router, row()), asked(router, row(), 0.25)]
    others = [asked(router, row()) for _ in range(4)]
    assert await status(urgent[1]) == 504
    assert not any(routed.late for routed in await asyncio.gather(urgent[0], *others))
    assert worker.batches == [1, 4]


async def test_the_fastest_idle_worker_is_asked_first() -> None:
    slow, fast = StandInWorker("slow", lambda _: 0.4), StandInWorker("fast", lambda _: 0.1)
    router = make_router(slow, fast)
    await asyncio.gather(asked(router, row()), asked(router, row()))
    await infer(router, "t", row())
    assert (slow.batches, fast.batches) == ([1], [1, 1])


async def test_the_slowest_worker_in_time_is_used_first_if_so_configured() -> None:
    slow, fast = StandInWorker("slow", lambda _: 0.4), StandInWorker("fast", lambda _: 0.1)
    router = make_router(slow, fast, slowest_first=True)
    await infer(router, "t", row())
    await infer(router, "t", row(), router.clock() + 0.2)
    assert (slow.batches, fast.batches) == ([1], [1])


async def test_what_nobody_can_answer_in_time_is_given_up_at_once() -> None:
    worker = StandInWorker(latency_s=lambda _: 0.5)
    router = make_router(worker)
    began_s = router.clock()
    with refused(504, "deadline"):
        await infer(router, "t", row(), router.clock() + 0.4)
    assert router.clock() == began_s
    assert worker.batches == []
    assert router.counts["t"].total == Counted(received=1, dropped=1)


async def test_a_worker_that_hangs_does_not_keep_those_that_wait() -> None:
    router = make_router(slo_s=0.5)
    worker = StandInWorker(latency_s=lambda _: 0.1)
    worker.held.clear()
    router.attach("t", worker, worker.latency_s)
    stuck, waits = asked(router, row()), asked(router, row())
    urgent = asked(router, row(), 0.2)
    assert await status(urgent) == 504
    assert await status(waits) == 504
    assert router.clock() == pytest.approx(1000.4, abs=0.01)
    await asyncio.sleep(0.2)
    worker.held.set()
    assert (await stuck).late
    assert router.counts["t"].total == Counted(received=3, late=1, dropped=2)


async def test_a_worker_that_hangs_keeps_its_batch_no_longer_than_a_late_answer_is_worth() -> None:
    router = make_router(slo_s=0.5)
    first, second = asked(router, row()), asked(router, row(), 2.0)
    await asyncio.sleep(0)  # both wait, and go out together
    hung = StandInWorker()
    hung.held.clear()
    router.attach("t", hung, hung.latency_s)
    assert await status(first) == 504
    assert router.clock() == pytest.approx(1000.0 + 0.5 + OVERDUE_S, abs=0.01)
    assert await status(second) == 504
    assert router.clock() == pytest.approx(1000.0 + 2.0 + OVERDUE_S, abs=0.01)
    hung.die()
    await asyncio.sleep(0.1)
    assert router.workers("t") == {}
    assert router.counts["t"].total == Counted(received=2, dropped=2)


async def test_a_full_queue_refuses_at_once() -> None:
    router = make_router(slo_s=100.0, queue=2)
    waits = [asked(router, row()), asked(router, row())]
    await asyncio.sleep(0)
    with refused(429, "2 requests wait"):
        await infer(router, "t", row())
    worker = StandInWorker()
    router.attach("t", worker, worker.latency_s)
    await asyncio.gather(*waits)
    assert router.counts["t"].total == Counted(received=3, in_time=2, dropped=1)


async def test_without_a_worker_requests_wait_for_one_until_their_deadline() -> None:
    router = make_router(slo_s=1.0)
    assert not router.ready("t")
    early, later = asked(router, row()), asked(router, row(), 3.0)
    assert await status(early) == 503
    assert router.clock() == pytest.approx(1001.0, abs=0.01)
    worker = StandInWorker()
    router.attach("t", worker, worker.latency_s)
    assert router.ready("t")
    assert not (await later).late


async def test_draining_ends_with_the_batch_and_takes_nothing_new() -> None:
    old, new = StandInWorker("old", lambda _: 0.3), StandInWorker("new", lambda _: 0.5)
    router = make_router(old, new, slo_s=10.0)
    first = asked(router, row())
    await old.begun.wait()
    draining = asyncio.create_task(router.drain(old))
    await asyncio.sleep(0)
    assert router.workers("t") == {"old": "draining", "new": "idle"}
    await asyncio.gather(*(asked(router, row()) for _ in range(3)))
    await draining
    assert not (await first).late
    assert (old.batches, new.batches) == ([1], [1, 2])
    assert router.workers("t") == {"new": "idle"}


async def test_draining_an_idle_or_unknown_worker_returns() -> None:
    router = make_router()
    worker = StandInWorker()
    await router.drain(worker)
    router.attach("t", worker, worker.latency_s)
    await router.drain(worker)
    assert not router.ready("t")
    router.attach("t", worker, worker.latency_s)
    with pytest.raises(InputError, match="already"):
        router.attach("t", worker, worker.latency_s)


async def test_a_paused_worker_takes_nothing_until_its_pause_ends() -> None:
    worker, two = StandInWorker("one", lambda _: 0.3), StandInWorker("two", lambda _: 0.5)
    router = make_router(worker, two, slo_s=10.0)
    first = asked(router, row())
    await worker.begun.wait()
    async with router.paused(worker):
        assert first.done()
        assert router.ready("t")
        await asyncio.gather(*(asked(router, row()) for _ in range(3)))
        assert (worker.batches, two.batches) == ([1], [1, 2])
        waiting = [asked(router, row()) for _ in range(3)]
        await asyncio.sleep(0.01)
    await asyncio.gather(*waiting)
    assert sum(worker.batches) > 1
    assert router.workers("t") == {"one": "idle", "two": "idle"}


async def test_the_only_worker_is_not_paused_and_a_drained_one_stays_drained() -> None:
    worker, two = StandInWorker("one", lambda _: 0.3), StandInWorker("two", lambda _: 0.3)
    router = make_router(worker, slo_s=10.0)
    async with router.paused(worker), router.paused(two):
        await asked(router, row())
    router.attach("t", two, two.latency_s)
    async with router.paused(worker):
        async with router.paused(two):  # one must go on
            assert router.workers("t") == {"one": "draining", "two": "idle"}
        await router.drain(worker)
    assert router.workers("t") == {"two": "idle"}


async def test_a_lost_workers_requests_go_to_another() -> None:
    router = make_router(slo_s=10.0)
    first = StandInWorker("first", lambda _: 0.1)
    first.held.clear()
    router.attach("t", first, first.latency_s)
    waits = asked(router, row(1))
    await first.begun.wait()
    first.die()
    await asyncio.sleep(1.0)
    assert router.workers("t") == {}
    second = StandInWorker("second", lambda _: 0.1)
    router.attach("t", second, second.latency_s)
    assert (await waits).scores.argmax() == 1
    assert router.counts["t"].total == Counted(received=1, in_time=1)


async def test_a_request_that_two_workers_were_lost_with_fails() -> None:
    workers = [StandInWorker(str(place), lambda _: 0.1) for place in range(3)]
    router = make_router(*workers, slo_s=10.0)
    for worker in workers[:2]:
        worker.die()
    with refused(500, "two workers"):
        await infer(router, "t", row())
    assert workers[2].batches == []
    assert router.counts["t"].total == Counted(received=1, failed=1)


async def test_detaching_puts_the_batch_back_at_once() -> None:
    hung, other = StandInWorker("hung", lambda _: 0.1), StandInWorker("other", lambda _: 0.2)
    hung.held.clear()
    router = make_router(hung, other, slo_s=10.0)
    waits = asked(router, row())
    await hung.begun.wait()
    router.detach(hung)
    assert not (await waits).late
    assert other.batches == [1]
    router.detach(hung)


async def test_what_a_lost_worker_held_too_long_is_late() -> None:
    hung, other = StandInWorker("hung", lambda _: 0.1), StandInWorker("other", lambda _: 0.4)
    hung.held.clear()
    router = make_router(hung, other, slo_s=0.5)
    waits = asked(router, row())
    await asyncio.sleep(0.3)
    router.detach(hung)
    assert await status(waits) == 504
    assert other.batches == []


async def test_one_request_the_model_fails_on_takes_no_other_with_it() -> None:
    worker = StandInWorker(latency_s=lambda _: 0.1)
    router = make_router(worker, slo_s=10.0)
    waits = [asked(router, row(value)) for value in (0, 1, POISON, 2)]
    answers = [await outcome(wait) for wait in waits]
    assert isinstance(answers[2], HttpError)
    assert answers[2].status == 500
    assert [answer.scores.argmax() for answer in answers if isinstance(answer, Routed)] == [0, 1, 2]
    assert worker.batches == [1, 3, 1, 1, 1]
    assert router.counts["t"].total == Counted(received=4, in_time=3, failed=1)


async def test_a_client_that_leaves_as_its_request_is_given_up_is_counted_once() -> None:
    router, slow = make_router(), StandInWorker(latency_s=lambda _: 0.5)
    left = asked(router, row(), within_s=0.1)
    await asyncio.sleep(0)
    left.cancel()
    router.attach("t", slow, slow.latency_s)  # which finds it in the line, and hopeless
    with pytest.raises(asyncio.CancelledError):
        await left
    assert router.counts["t"].total == Counted(received=1, dropped=1)


async def test_a_cancelled_request_leaves_nothing_behind() -> None:
    worker = StandInWorker(latency_s=lambda _: 0.1)
    router = make_router(worker, slo_s=10.0)
    served, waits = asked(router, row()), asked(router, row())
    await worker.begun.wait()
    for task in (served, waits):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert router.waiting("t") == 0
    await asyncio.sleep(1.0)
    assert worker.batches == [1]
    assert router.counts["t"].total == Counted(received=2, dropped=2)


async def test_closing_refuses_what_waits_and_what_comes() -> None:
    router = make_router(slo_s=10.0)
    worker = StandInWorker(latency_s=lambda _: 0.1)
    worker.held.clear()
    router.attach("t", worker, worker.latency_s)
    waits = [asked(router, row()), asked(router, row())]
    await worker.begun.wait()
    router.close()
    assert all([await status(wait) == 503 for wait in waits])
    with refused(503, "is stopping"):
        await infer(router, "t", row())


async def test_counts_are_kept_by_the_second_in_which_a_request_came() -> None:
    worker = StandInWorker(latency_s=lambda _: 1.5)
    router = make_router(worker, slo_s=10.0)
    for _ in range(2):
        await infer(router, "t", row())
    seconds = router.counts["t"].seconds(999, 1003)
    assert [second.second for second in seconds] == [999, 1000, 1001, 1002]
    assert [second.received for second in seconds] == [0, 1, 1, 0]
    assert [second.in_time for second in seconds] == [0, 1, 1, 0]
    assert sum(router.counts["t"].latencies) == 2


async def test_a_hiccup_does_not_shut_a_worker_out_for_good() -> None:
    router = make_router(slo_s=0.5)
    slow = [1.2]
    worker = StandInWorker(latency_s=lambda _: slow.pop() if slow else 0.1)
    router.attach("t", worker, lambda _: 0.1)
    assert (await infer(router, "t", row())).late
    assert await status(asked(router, row(), 0.2)) == 504
    await asyncio.sleep(5.0)
    assert not (await asked(router, row(), 0.2)).late
    slow.append(1.2)
    assert (await infer(router, "t", row())).late
    assert not (await infer(router, "t", row())).late


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_every_request_is_counted_once_whatever_happens(data: st.DataObject) -> None:
    steps = data.draw(
        st.lists(st.tuples(st.integers(0, 7), st.integers(0, 3), st.floats(0, 0.4)), max_size=40)
    )
    run_virtually(_whatever_happens(steps))


async def _whatever_happens(steps: list[tuple[int, int, float]]) -> None:
    router, named, alive = make_router(slo_s=0.6, queue=8), 0, list[StandInWorker]()
    asking: list[asyncio.Task[Routed]] = []
    for kind, detail, pause_s in steps:
        if kind <= 3:
            value = POISON if kind == 3 else detail
            asking.append(asked(router, row(value, 1 + detail), 0.2 + detail * 0.3))
        elif kind == 4:
            named += 1
            worker = StandInWorker(
                f"w{named}", [0, 0.05, 0.2, 0.3, 0.35 + 0.1 * detail].__getitem__
            )
            router.attach("t", worker, worker.latency_s)
            alive.append(worker)
        elif alive and kind == 5:
            alive.pop(detail % len(alive)).die()
        elif alive and kind == 6:
            await router.drain(alive.pop(detail % len(alive)))
        elif asking and kind == 7:
            asking[detail % len(asking)].cancel()
        await asyncio.sleep(pause_s)
    answers = await asyncio.gather(*asking, return_exceptions=True)
    kinds = (Routed, HttpError, asyncio.CancelledError)
    assert all(isinstance(answer, kinds) for answer in answers)
    total = router.counts["t"].total
    assert (total.open, router.waiting("t")) == (0, 0)
    routed = [answer for answer in answers if isinstance(answer, Routed)]
    assert total.in_time + total.late >= sum(len(answer.scores) for answer in routed)
    seconds = router.counts["t"].seconds(900, 1200)
    assert sum(second.dropped for second in seconds) == total.dropped


async def _goodput(load: float, latency_s: Callable[[int], float], jitter: float) -> float:
    """Answers in time per second, under this multiple of the capacity."""
    router, draw = make_router(slo_s=0.2, batch=8), np.random.default_rng(3)
    worker = StandInWorker(
        latency_s=lambda rows: latency_s(rows) * (1 + jitter * draw.exponential())
    )
    router.attach("t", worker, latency_s)
    capacity_rps = max(n / latency_s(n) for n in range(1, 9) if 2 * latency_s(n) <= 0.2)
    asking = []
    for _ in range(int(4 * capacity_rps * load)):
        await asyncio.sleep(draw.exponential(1 / (capacity_rps * load)))
        asking.append(asyncio.create_task(outcome(asked(router, row()))))
        assert router.waiting("t") <= 100
    await asyncio.gather(*asking)
    return router.counts["t"].total.in_time / 4


@pytest.mark.parametrize(("base_s", "row_s", "jitter"), [(0.02, 0.005, 0.0), (0.09, 0.001, 0.1)])
def test_a_flood_costs_no_goodput(base_s: float, row_s: float, jitter: float) -> None:
    def latency_s(rows: int) -> float:
        return base_s + row_s * rows

    at_capacity = run_virtually(_goodput(1.0, latency_s, jitter))
    for load in (2.0, 10.0):
        assert run_virtually(_goodput(load, latency_s, jitter)) >= 0.9 * at_capacity


def make_lending_router(
    *own: StandInWorker, other: StandInWorker, standby: StandInWorker, slo_s: float = 1.0
) -> Router:
    """A tenant `t` with workers, and its standby on the slices of the worker of tenant `u`."""
    router = make_router(*own, slo_s=slo_s)
    router.add(QueueSettings("u", 1.0, 4))
    router.attach("u", other, other.latency_s)
    router.attach("t", standby, standby.latency_s, may_borrow=lambda: router.is_idle(other))
    return router


async def test_a_standby_answers_full_batches_while_its_slices_are_idle() -> None:
    own, standby = (StandInWorker(name, lambda _: 0.1) for name in ("own", "s"))
    other = StandInWorker("other", lambda _: 0.5)
    router = make_lending_router(own, other=other, standby=standby)
    assert router.workers("t") == {"own": "idle"}
    await asyncio.gather(*(asked(router, row()) for _ in range(4)))
    assert (own.batches, standby.batches) == ([1, 3], [])  # three wait: not a full batch
    await asyncio.gather(*(asked(router, row()) for _ in range(6)))
    assert (own.batches[2:], standby.batches) == ([1, 1], [4])
    others = [asyncio.create_task(infer(router, "u", row()))]
    await other.begun.wait()
    await asyncio.gather(*(asked(router, row()) for _ in range(5)), *others)
    assert (own.batches[4:], standby.batches) == ([1, 4], [4])


async def test_a_standby_begins_as_soon_as_the_other_worker_is_idle() -> None:
    own, standby = StandInWorker("own", lambda _: 0.3), StandInWorker("s", lambda _: 0.1)
    other = StandInWorker("other", lambda _: 0.1)
    router = make_lending_router(own, other=other, standby=standby)
    busy = asyncio.create_task(infer(router, "u", row()))
    await other.begun.wait()
    answers = await asyncio.gather(*(asked(router, row()) for _ in range(5)))
    await busy
    assert (own.batches, standby.batches) == ([1], [4])
    assert answers[-1].waited_s == pytest.approx(0.1)


async def test_a_standby_alone_does_not_make_a_tenant_ready_and_serves_once_it_is_its_turn() -> (
    None
):
    other, standby = StandInWorker("other"), StandInWorker("s", lambda _: 0.1)
    router = make_lending_router(other=other, standby=standby)
    assert not router.ready("t")
    await asyncio.gather(*(asked(router, row()) for _ in range(4)))
    assert standby.batches == [4]
    router.attach("t", standby, standby.latency_s)
    assert router.ready("t")
    await asked(router, row())
    assert standby.batches == [4, 1]
    with pytest.raises(InputError, match="attached already"):
        router.attach("t", standby, standby.latency_s)


async def test_what_a_lost_standby_had_is_answered_by_another_worker() -> None:
    own, other, standby = (StandInWorker(name, lambda _: 0.1) for name in ("own", "other", "s"))
    router = make_lending_router(own, other=other, standby=standby)
    standby.held.clear()
    answers = [asked(router, row()) for _ in range(5)]
    await standby.begun.wait()
    standby.die()
    assert {await status(answer) for answer in answers} == {200}
    assert own.batches == [1, 4]


async def test_a_full_batch_for_a_standby_is_no_surplus() -> None:
    """Its own worker takes two at a time within the objective, the standby four."""
    own = StandInWorker("own", lambda rows: 0.15 * rows)
    other, standby = StandInWorker("other"), StandInWorker("s", lambda _: 0.3)
    router = make_lending_router(own, other=other, standby=standby, slo_s=0.65)
    answers = [status(asked(router, row())) for _ in range(20)]
    assert sum(code == 200 for code in await asyncio.gather(*answers)) >= 8
    assert standby.batches[0] == 4


async def test_requests_of_a_failed_batch_on_lent_slices_do_not_wait_for_ever() -> None:
    other, standby = StandInWorker("other"), StandInWorker("s", lambda _: 0.1)
    router = make_lending_router(other=other, standby=standby)
    answers = [asked(router, row(POISON if number == 1 else 0)) for number in range(4)]
    assert 503 in {await status(answer) for answer in answers}
    assert router.counts["t"].total.open == 0


async def test_a_worker_that_comes_lends_its_slices_at_once() -> None:
    own, other, standby = (StandInWorker(name, lambda _: 0.5) for name in ("own", "other", "s"))
    router = make_router(own)
    router.add(QueueSettings("u", 1.0, 4))
    router.attach("t", standby, standby.latency_s, may_borrow=lambda: router.is_idle(other))
    answers = [asked(router, row()) for _ in range(5)]
    await asyncio.sleep(0.1)
    assert standby.batches == []
    router.attach("u", other, other.latency_s)
    await asyncio.sleep(0)
    assert standby.batches == [4]
    assert {await status(answer) for answer in answers} == {200}


async def test_an_idle_worker_answers_inputs_that_are_no_requests() -> None:
    worker = StandInWorker(latency_s=lambda _: 0.1)
    router = make_router(worker)
    beside = asyncio.create_task(router.infer_when_idle("t", row(2, 4), 1.0))
    await asyncio.sleep(0.05)
    routed = await infer(router, "t", row(1))
    # the request waited for the batch that had begun, and is the only one that counts
    assert routed.waited_s == pytest.approx(0.05)
    assert routed.scores.argmax() == 1
    answered = await beside
    assert answered is not None
    assert answered.scores.argmax(axis=1).tolist() == [2] * 4
    assert router.counts["t"].total == Counted(received=1, in_time=1)


async def test_without_an_idle_worker_what_is_no_request_takes_the_turn_after_a_batch() -> None:
    worker = StandInWorker(latency_s=lambda _: 0.1)
    router = make_router(worker, batch=1, slo_s=10.0)
    began_s, waiting = router.clock(), [asked(router, row()) for _ in range(5)]
    await asyncio.sleep(0)
    answered = await router.infer_when_idle("t", row(2), 0.15)
    assert answered is not None
    # the two batches that had begun before the patience ended, this one, then the others
    assert router.clock() - began_s == pytest.approx(0.3, abs=0.02)
    assert [await status(task) for task in waiting] == [200] * 5
    assert router.counts["t"].total == Counted(received=5, in_time=5)
    await router.drain(worker)
    assert await router.infer_when_idle("t", row(2), 0.05) is None


async def test_a_drain_waits_for_what_is_no_request() -> None:
    worker = StandInWorker(latency_s=lambda _: 0.1)
    router = make_router(worker)
    beside = asyncio.create_task(router.infer_when_idle("t", row(2), 1.0))
    await asyncio.sleep(0.01)
    await router.drain(worker)
    assert beside.done()
    assert router.workers("t") == {}


async def test_a_worker_that_dies_with_what_is_no_request_loses_no_request() -> None:
    first, second = (StandInWorker(name, latency_s=lambda _: 0.1) for name in "ab")
    router = make_router(first)
    beside = asyncio.create_task(router.infer_when_idle("t", row(), 1.0))
    await asyncio.sleep(0.05)
    waits = asked(router, row(1))
    first.die()
    with pytest.raises(MigratorError):
        await beside
    router.attach("t", second, second.latency_s)
    assert (await waits).scores.argmax() == 1
