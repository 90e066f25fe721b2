"""Static splits by hand: layouts, the queue of retrainings, what is refused."""

from __future__ import annotations

import pytest
from support.mig_views import observation, running, sizes, view, waiting, written

from migrator.core.errors import InputError
from migrator.policies.fixed_shares import POLICIES, Static
from migrator.policies.policy import Observation

BY_NAME = {policy.name: policy for policy in POLICIES if isinstance(policy, Static)}


def split(name: str, seen: Observation) -> str:
    (slot,) = BY_NAME[name].decide(seen).slots
    return written(slot)


def test_there_are_six_splits() -> None:
    assert list(BY_NAME) == [f"static-{7 - gpcs}-{gpcs}" for gpcs in range(1, 7)]


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


def test_one_gpc_to_retrain_on() -> None:
    (slot,) = BY_NAME["static-6-1"].decide(observation(view("a", retraining=waiting()))).slots
    assert sizes(slot) == ["1g:a"] * 6 + ["1g:a*"]


def test_the_retrainings_are_cut_to_end_soonest() -> None:
    """On 3g one after the other: 31 and 62 s; on 2g and 1g at once: 41 and 71 s."""
    seen = observation(view("a", retraining=waiting()), view("b", retraining=waiting(0.9)))
    assert split("static-4-3", seen) == "1g@0:b 1g@1:b 1g@2:a 1g@3:a 3g@4:b*"


def test_the_next_in_line_starts_when_one_has_ended() -> None:
    held = "1g@0:b 1g@1:b 1g@2:a 1g@3:a 3g@4:b*"
    seen = observation(view("a", retraining=waiting()), view("b"), slot=31, held=held)
    assert BY_NAME["static-4-3"].on_completion
    assert split("static-4-3", seen) == "1g@0:b 1g@1:b 1g@2:a 1g@3:a 3g@4:a*"


def test_nobody_retrains_on_two_instances() -> None:
    """What a trained on is left when its next retraining gets the larger one that b had."""
    held = "1g@0:b 1g@1:a 2g@2:b* 1g@6:a*"
    seen = observation(view("a", retraining=waiting()), view("b"), slot=31, held=held)
    assert split("static-4-3", seen) == "1g@0:b 1g@1:a 2g@2:a*"


def test_what_the_last_one_leaves_idles() -> None:
    held = "1g@0:b 1g@1:b 1g@2:a 1g@3:a 3g@4:a*"
    assert split("static-4-3", observation(view("a"), view("b"), slot=70, held=held)) == held


def test_one_that_outlasts_the_window_goes_on_and_the_others_wait() -> None:
    held = "1g@0:b 1g@1:b 1g@2:a 1g@3:a 3g@4:a*"
    a = view("a", retraining=running("3g@4:a*", done=0.5))
    assert split("static-4-3", observation(a, view("b", retraining=waiting()), held=held)) == held


def test_more_tenants_than_gpcs_are_refused() -> None:
    with pytest.raises(InputError, match="static-2-5 has 2 GPCs for inference, but the 3 tenants"):
        split("static-2-5", observation(*map(view, "abc")))


def test_other_boards_are_refused_with_those_that_would_do() -> None:
    with pytest.raises(InputError, match=r"A30-24GB has 4; use A100-40GB, .*H200-141GB"):
        Static(4, 3).decide(observation(view("a"), board="A30-24GB"))
