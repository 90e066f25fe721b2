"""Layouts: even parts, and what stays where when things change."""

from __future__ import annotations

import pytest
from support.mig_views import observation, service, view, written

from migrator.core.catalogue import Multiset, board
from migrator.core.problem import Kind, Task
from migrator.policies.layouts import (
    Wish,
    best_allocation,
    even_parts,
    inference_wish,
    least_gpcs,
)
from migrator.policies.policy import Observation

A = Task("a", Kind.INFERENCE)
B = Task("b", Kind.INFERENCE)


@pytest.mark.parametrize(
    ("gpcs", "least", "expected"),
    [
        (7, (1, 1), (4, 3)),
        (7, (1, 1, 1), (3, 2, 2)),
        (7, (1, 4), (3, 4)),
        (4, (1, 2, 1), (1, 2, 1)),
        (4, (3, 3), (3, 3)),
    ],
)
def test_even_parts(gpcs: int, least: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert even_parts(gpcs, least) == expected


def laid(seen: Observation, **wanted: Multiset) -> str:
    wishes = [Wish(Task(name, Kind.INFERENCE), (sizes,)) for name, sizes in wanted.items()]
    return written(best_allocation(seen, wishes, lambda _: ()))


def test_small_ones_sit_high_so_that_large_ones_still_fit() -> None:
    seen = observation(view("a"), view("b"))
    assert laid(seen, a=(1,), b=(1, 1)) == "1g@4:b 1g@5:b 1g@6:a"
    assert laid(seen, a=(3,), b=(2,)) == "2g@0:b 3g@4:a"


def test_an_instance_stays_with_its_tenant() -> None:
    seen = observation(view("a"), view("b"), held="2g@4:a 1g@1:b")
    assert laid(seen, a=(2,), b=(1, 1)) == "1g@1:b 2g@4:a 1g@6:b"


def test_among_equals_the_layout_that_keeps_more_wins() -> None:
    seen = observation(view("a"), held="2g@4:a")
    wishes = [Wish(A, ((1, 1), (2,)))]
    assert written(best_allocation(seen, wishes, lambda _: (1.0,))) == "2g@4:a"
    more = best_allocation(seen, wishes, lambda chosen: (len(chosen[0]),))
    assert written(more) == "1g@5:a 1g@6:a"


def test_what_is_not_allowed_is_not_taken() -> None:
    wishes = [Wish(A, ((4,), (3,))), Wish(B, ((3,), (2,)))]
    instances = best_allocation(
        observation(view("a"), view("b")),
        wishes,
        lambda chosen: None if chosen[0] == (4,) else (sum(map(sum, chosen)),),
    )
    assert sorted(instance.gpcs for instance in instances) == [3, 3]


def test_sizes_that_miss_the_objective_serve_nobody() -> None:
    slow = service("a", slo_s=0.06)
    assert least_gpcs(slow, board("A100-40GB")) == 2
    choices = inference_wish(slow, board("A100-40GB"), 4).choices
    assert sorted(choices) == [(2,), (2, 2), (3,), (4,)]
    assert inference_wish(slow, board("A100-40GB"), 1).choices == ((2,),)
    assert inference_wish(slow, board("A100-40GB"), 4, largest=1).choices == ((2, 2), (2,))


def test_only_one_instance_has_to_meet_the_minimum() -> None:
    large = service("a", min_gpcs=3)
    assert sorted(inference_wish(large, board("A100-40GB"), 4).choices) == [(3,), (3, 1), (4,)]
