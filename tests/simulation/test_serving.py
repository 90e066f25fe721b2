"""The inner loop against queueing theory and against small cases done by hand."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.amount import amount

from migrator.simulation.serving import (
    DROPPED,
    GOODPUT,
    IN_TIME,
    LATE,
    RECONFIGURING,
    WAITED_S,
    Conditions,
    WorkerColumns,
    serve,
)

FOREVER = 1e18


def workers(*rows: tuple[float, float, float], batch: int = 1) -> WorkerColumns:
    """(seconds per request, ready, until) of every worker; a batch takes as long as its sum."""
    return WorkerColumns(
        np.array([[latency * max(1, n) for n in range(batch + 1)] for latency, _, _ in rows]),
        np.array([ready for _, ready, _ in rows]),
        np.array([until for _, _, until in rows]),
        np.full(len(rows), -FOREVER),
    )


def conditions(**changed: Any) -> Conditions:
    plain = Conditions(
        begin_s=0.0,
        end_s=FOREVER,
        slo_s=1e9,
        batch=1,
        slowest_first=False,
        slot_s=1.0,
        slowdown=np.ones(1),
        switch_s=np.zeros(1),
        accuracy=np.ones(1),
        cold_from_s=np.empty(0),
        cold_to_s=np.empty(0),
    )
    return plain._replace(**changed)


def served(
    arrivals: list[float], these: WorkerColumns, now: Conditions
) -> tuple[dict[str, float], int]:
    counted, head = serve(np.array(arrivals), np.zeros(len(arrivals)), False, these, now)
    names = ("in_time", "goodput", "late", "dropped", "reconfiguring", "waited_s")
    return dict(zip(names, counted.tolist(), strict=True)), head


def erlang_like_wait(servers: int, load: float) -> float:
    """Mean wait of M/D/c in service times (Crommelin's series)."""

    def tail(mean: float, at_least: int) -> float:
        below, term = 0.0, math.exp(-mean)
        for count in range(at_least):
            below, term = below + term, term * mean / (count + 1)
        return 1 - below

    return sum(
        tail(n * servers * load, n * servers) - tail(n * servers * load, n * servers + 1) / load
        for n in range(1, 60)
    )


@pytest.mark.parametrize(("servers", "load"), [(1, 0.3), (1, 0.5), (1, 0.7), (3, 0.6), (7, 0.8)])
def test_waits_are_those_of_an_m_d_c_queue(servers: int, load: float) -> None:
    requests, service_s = 400_000, 0.01
    gaps = np.random.default_rng(servers).exponential(service_s / (servers * load), requests)
    these = workers(*[(service_s, 0.0, FOREVER)] * servers)
    counted, head = serve(np.cumsum(gaps), np.zeros(1), False, these, conditions())
    assert head == counted[IN_TIME] == requests
    wait = counted[WAITED_S] / requests / service_s
    assert wait == pytest.approx(erlang_like_wait(servers, load), rel=0.04)


def test_one_series_is_the_textbook_formula_for_one_server() -> None:
    assert erlang_like_wait(1, 0.5) == pytest.approx(0.5 / (2 * (1 - 0.5)), rel=1e-6)


def test_what_can_no_longer_be_in_time_is_dropped() -> None:
    # one second each, deadline after 1.5 s: the second would end at 2.0, the third at 2.2
    now = conditions(slo_s=1.5)
    counted, head = served([0.0, 0.1, 1.2], workers((1.0, 0.0, FOREVER)), now)
    assert (counted["in_time"], counted["dropped"], head) == (2, 1, 3)


def test_a_worker_serves_nothing_before_it_is_ready_nor_begins_after_its_end() -> None:
    counted, _ = served([0.0], workers((0.1, 5.0, FOREVER)), conditions())
    assert counted["waited_s"] == 5.0
    counted, _ = served([0.0, 0.5, 0.95], workers((0.4, 0.0, 0.9)), conditions(end_s=0.99))
    assert (counted["in_time"], counted["dropped"]) == (2, 0)


def test_what_a_drained_worker_holds_is_finished() -> None:
    counted, _ = served([0.8], workers((0.4, 0.0, 0.9)), conditions(slo_s=1.0))
    assert (counted["in_time"], counted["dropped"]) == (1, 0)


def test_what_the_window_cannot_answer_waits_for_the_next() -> None:
    counted, head = served([9.9, 9.95], workers((0.1, 0.0, 9.0)), conditions(end_s=10, slo_s=1))
    assert head == 0
    assert not any(counted.values())


def test_waiting_requests_share_a_batch_while_the_first_stays_in_time() -> None:
    # while the first is served (0 to 1) three come; together they take 3 s
    these = workers((1.0, 0.0, FOREVER), batch=4)
    now = conditions(slo_s=6.0, batch=4)
    counted, _ = served([0.0, 0.2, 0.4, 0.6], these, now)
    assert (counted["in_time"], these.free_s[0]) == (4, 4.0)
    these = workers((1.0, 0.0, FOREVER), batch=4)
    counted, _ = served([0.0, 0.2, 0.4, 0.6], these, now._replace(slo_s=3.0))
    # the first of them must end by 3.2, so two go together and the last one follows: 3 + 1 > 3.6
    assert (counted["in_time"], counted["dropped"], these.free_s[0]) == (3, 1, 3.0)


def test_in_a_crowd_the_oldest_are_given_up_for_a_full_batch() -> None:
    # two at a time take 1 s, one alone 0.8 s; the first of those that wait has 0.9 s left
    latency_s = np.array([[0.8, 0.8, 1.0]])
    these = WorkerColumns(latency_s, np.zeros(1), np.full(1, FOREVER), np.full(1, 1.0))
    counted, _ = served([0.0, 0.3, 0.4], these, conditions(slo_s=2.0, batch=2, end_s=9.0))
    assert (counted["in_time"], counted["dropped"], these.free_s[0]) == (2, 1, 2.0)


def test_where_no_crowd_waits_nobody_is_given_up() -> None:
    latency_s = np.array([[0.8, 0.8, 1.0]])
    these = WorkerColumns(latency_s, np.zeros(1), np.full(1, FOREVER), np.full(1, 1.1))
    counted, _ = served([0.0, 0.3], these, conditions(slo_s=2.0, batch=2, end_s=9.0))
    # 0.9 s are left to the first: it goes alone, and the second still after it
    assert (counted["in_time"], counted["dropped"]) == (1, 1)


def test_neighbours_make_requests_late_until_the_router_has_seen_it() -> None:
    now = conditions(slo_s=1.5, slowdown=np.array([1.0, 2.0, 2.0]))
    counted, _ = served([0.1, 1.2, 2.5], workers((1.0, 0.0, FOREVER)), now)
    # as expected; one second becomes two, too late; what would take two is not even begun
    assert (counted["in_time"], counted["late"], counted["dropped"]) == (1, 1, 1)


def test_the_thrifty_router_takes_the_slowest_that_is_in_time() -> None:
    slow_and_fast = [(1.0, 0.0, FOREVER), (0.1, 0.0, FOREVER)]
    soonest, slowest_first = workers(*slow_and_fast), workers(*slow_and_fast)
    served([0.0], soonest, conditions(slo_s=2.0))
    served([0.0], slowest_first, conditions(slo_s=2.0, slowest_first=True))
    assert soonest.free_s[1] == 0.1
    assert slowest_first.free_s[0] == 1.0
    served([0.5], slowest_first, conditions(slo_s=1.2, slowest_first=True))
    assert slowest_first.free_s[1] == pytest.approx(0.6)


def test_accuracy_is_that_of_the_version_a_request_begins_on() -> None:
    now = conditions(switch_s=np.array([0.0, 1.0]), accuracy=np.array([0.25, 0.75]))
    counted, _ = served([0.5, 0.95, 1.5], workers((0.1, 0.0, FOREVER)), now)
    assert counted["goodput"] == 0.25 + 0.25 + 0.75


def test_drawn_correctness_compares_the_draw_with_the_accuracy() -> None:
    now = conditions(accuracy=np.array([0.5]))
    draws = np.array([0.4, 0.6, 0.1])
    counted, _ = serve(np.array([0.0, 1.0, 2.0]), draws, True, workers((0.1, 0.0, FOREVER)), now)
    assert (counted[GOODPUT], counted[IN_TIME]) == (2, 3)


def test_losses_while_an_instance_is_cold_are_told_apart() -> None:
    now = conditions(slo_s=0.5, cold_from_s=np.array([1.0]), cold_to_s=np.array([2.0]))
    counted, _ = served([0.5, 1.5, 2.5], workers((1.0, 0.0, FOREVER)), now)
    assert (counted["dropped"], counted["reconfiguring"]) == (3, 1)


@settings(max_examples=amount(75, 150), deadline=None)
@given(
    arrivals=st.lists(st.floats(0, 10), max_size=60).map(sorted),
    crew=st.lists(st.tuples(st.floats(0.01, 2), st.floats(0, 8), st.floats(0.1, 8)), max_size=6),
    slo_s=st.floats(0.05, 4),
    batch=st.integers(1, 4),
    slower=st.floats(1, 3),
    slowest_first=st.booleans(),
)
def test_every_request_is_counted_once(
    arrivals: list[float],
    crew: list[tuple[float, float, float]],
    slo_s: float,
    batch: int,
    slower: float,
    slowest_first: bool,
) -> None:
    these = workers(*[(s, ready, ready + life) for s, ready, life in sorted(crew)], batch=batch)
    these = these._replace(latency_s=these.latency_s.reshape(len(crew), batch + 1))
    now = conditions(
        end_s=10.0,
        slo_s=slo_s,
        batch=batch,
        slowdown=np.array([slower]),
        slowest_first=slowest_first,
    )
    counted, head = serve(np.array(arrivals), np.zeros(len(arrivals)), False, these, now)
    assert counted[IN_TIME] + counted[LATE] + counted[DROPPED] == head
    assert counted[GOODPUT] == counted[IN_TIME]
    assert counted[RECONFIGURING] == 0
    assert all(arrival + slo_s > 10.0 - 1e-9 for arrival in arrivals[head:])
    if slower == 1.0:
        assert counted[LATE] == 0


def test_what_waited_for_longer_than_a_slot_is_served_by_who_is_there() -> None:
    now = conditions(begin_s=10.0, end_s=20.0, slo_s=5.0)
    these = workers((0.1, 0.0, FOREVER))
    counted, head = served([7.0, 8.5, 10.5], these, now)
    assert (counted["in_time"], counted["dropped"], head) == (3, 0, 3)
    assert counted["waited_s"] == pytest.approx(3.0 + 1.6)


def test_the_thrifty_router_does_not_pile_up_among_equals() -> None:
    these = workers((1.0, 0.0, FOREVER), (1.0, 0.0, FOREVER))
    served([0.0, 0.0], these, conditions(slo_s=5.0, slowest_first=True))
    assert these.free_s.tolist() == [1.0, 1.0]
