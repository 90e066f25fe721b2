"""Equal MIG by hand: parts of 4 and 3 GPCs, all in 1g because those answer most."""

from __future__ import annotations

import pytest
from support.mig_views import observation, running, service, view, waiting, written

from migrator.core.errors import InputError
from migrator.policies.fixed_shares import EqualMig

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


def test_a_running_retraining_counts_as_its_tenants_part() -> None:
    retraining = running("1g@3:b*", done=0.4)
    seen = observation(view("a"), view("b", retraining=retraining), held="1g@0:a 1g@1:b 1g@3:b*")
    assert written(EQUAL.decide(seen).slots[0]) == (
        "1g@0:a 1g@1:b 1g@2:b 1g@3:b* 1g@4:a 1g@5:a 1g@6:a"
    )


def test_a_single_gpc_is_never_retrained_on() -> None:
    tenants = [view(name, retraining=waiting()) for name in "abcd"]
    decision = EQUAL.decide(observation(*tenants))
    retraining = [word for word in written(decision.slots[0]).split() if word.endswith("*")]
    assert sorted(word[-2] for word in retraining) == ["a", "b", "c"]


def test_what_finds_no_place_to_retrain_serves() -> None:
    """Two 3g leave no slice for a 1g, so the part of 4 serves on its 4g."""
    large = [service(name, min_gpcs=3) for name in "ab"]
    seen = observation(*(view(name, retraining=waiting()) for name in large))
    assert written(EQUAL.decide(seen).slots[0]) == "4g@0:a 3g@4:b"


def test_a_model_too_slow_for_every_size_is_refused() -> None:
    with pytest.raises(InputError, match=r"'a' answers no request within 0\.01 s"):
        EQUAL.decide(observation(view(service("a", slo_s=0.01))))


def test_tenants_that_do_not_fit_together_are_refused() -> None:
    large = [view(service(name, min_gpcs=3)) for name in "abc"]
    with pytest.raises(InputError, match="do not fit on A100-40GB together"):
        EQUAL.decide(observation(*large))
