"""Equal MIG by hand: parts of 4 and 3 GPCs, all in 1g because those answer most."""

from __future__ import annotations

import pytest
from support.mig_views import observation, service, view, waiting, written

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


def test_a_model_too_slow_for_every_size_is_refused() -> None:
    with pytest.raises(InputError, match=r"'a' answers no request within 0\.01 s"):
        EQUAL.decide(observation(view(service("a", slo_s=0.01))))


def test_tenants_that_do_not_fit_together_are_refused() -> None:
    large = [view(service(name, min_gpcs=3)) for name in "abc"]
    with pytest.raises(InputError, match="do not fit on A100-40GB together"):
        EQUAL.decide(observation(*large))
