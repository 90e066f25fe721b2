"""Policies with fixed shares by hand: static splits, and equal parts on MIG."""

from __future__ import annotations

import pytest
from support.mig_views import observation, service, view, waiting, written

from migrator.core.errors import InputError
from migrator.policies.fixed_shares import POLICIES, EqualMig, Static
from migrator.policies.policy import Observation

BY_NAME = {policy.name: policy for policy in POLICIES if isinstance(policy, Static)}


def split(name: str, seen: Observation) -> str:
    (slot,) = BY_NAME[name].decide(seen).slots
    return written(slot)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("static-5-2", "2g@0:a* 1g@2:a 1g@3:a 1g@4:a 1g@5:a 1g@6:a"),
        ("static-4-3", "1g@0:a 1g@1:a 1g@2:a 1g@3:a 3g@4:a*"),
        ("static-3-4", "4g@0:a* 1g@4:a 1g@5:a 1g@6:a"),
        ("static-2-5", "4g@0:a* 1g@5:a 1g@6:a"),
        ("static-1-6", "4g@0:a* 1g@6:a"),
    ],
)
def test_one_tenant(name: str, expected: str) -> None:
    """A single retraining cannot hold 5 or 6 GPCs: the nearest is 4."""
    assert split(name, observation(view("a", retraining=waiting()))) == expected


def test_the_retrainings_are_cut_to_end_soonest() -> None:
    """On 3g one after the other: 31 and 62 s; on 2g and 1g at once: 41 and 71 s."""
    seen = observation(view("a", retraining=waiting()), view("b", retraining=waiting(0.9)))
    assert split("static-4-3", seen) == "1g@0:b 1g@1:b 1g@2:a 1g@3:a 3g@4:b*"


def test_the_next_in_line_starts_when_one_has_ended() -> None:
    held = "1g@0:b 1g@1:b 1g@2:a 1g@3:a 3g@4:b*"
    seen = observation(view("a", retraining=waiting()), view("b"), slot=31, held=held)
    assert BY_NAME["static-4-3"].on_completion
    assert split("static-4-3", seen) == "1g@0:b 1g@1:b 1g@2:a 1g@3:a 3g@4:a*"


def test_what_the_last_one_leaves_idles() -> None:
    held = "1g@0:b 1g@1:b 1g@2:a 1g@3:a 3g@4:a*"
    assert split("static-4-3", observation(view("a"), view("b"), slot=70, held=held)) == held


def test_more_tenants_than_gpcs_are_refused() -> None:
    with pytest.raises(InputError, match="static-2-5 has 2 GPCs for inference, but the 3 tenants"):
        split("static-2-5", observation(*map(view, "abc")))


def test_other_boards_are_refused_with_those_that_would_do() -> None:
    with pytest.raises(InputError, match=r"A30-24GB has 4; use A100-40GB, .*H200-141GB"):
        Static(4, 3).decide(observation(view("a"), board="A30-24GB"))


EQUAL = EqualMig()


def test_the_odd_gpc_goes_to_the_first_tenant() -> None:
    decision = EQUAL.decide(observation(view("a"), view("b")))
    assert [written(slot) for slot in decision.slots] == [
        "1g@0:b 1g@1:b 1g@2:b 1g@3:a 1g@4:a 1g@5:a 1g@6:a"
    ]


def test_a_retraining_takes_up_to_half_of_its_tenants_part() -> None:
    decision = EQUAL.decide(observation(view("a", retraining=waiting()), view("b")))
    assert written(decision.slots[0]) == "2g@0:a* 1g@2:b 1g@3:b 1g@4:b 1g@5:a 1g@6:a"


def test_on_completion_it_goes_back_and_nobody_else_moves() -> None:
    held = "2g@2:a* 1g@0:b 1g@1:a 1g@4:b 1g@5:a 1g@6:b"
    seen = observation(view("a"), view("b"), slot=50, held=held)
    assert EQUAL.on_completion
    assert written(EQUAL.decide(seen).slots[0]) == (
        "1g@0:b 1g@1:a 1g@2:a 1g@3:a 1g@4:b 1g@5:a 1g@6:b"
    )


def test_a_model_too_slow_for_every_size_is_refused() -> None:
    with pytest.raises(InputError, match=r"'a' answers no request within 0\.01 s"):
        EQUAL.decide(observation(view(service("a", slo_s=0.01))))


def test_tenants_that_do_not_fit_together_are_refused() -> None:
    large = [view(service(name, min_gpcs=3)) for name in "abc"]
    with pytest.raises(InputError, match="do not fit on A100-40GB together"):
        EQUAL.decide(observation(*large))
