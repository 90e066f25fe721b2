"""MISO by hand: a slice per job, mean slowdowns worked out beside each case."""

from __future__ import annotations

from support.mig_views import observation, running, view, waiting, written

from migrator.policies.miso import POLICIES

(MISO,) = POLICIES


SEVEN = "1g@0:a 1g@1:a 1g@2:a 1g@3:a 1g@4:a 1g@5:a 1g@6:a"


def test_a_tenant_alone_has_the_whole_board() -> None:
    """Seven processes answer 70 a second on 1g each, one answers 45 on 7g."""
    assert written(MISO.decide(observation(view("a"))).slots[0]) == SEVEN


def test_the_least_mean_slowdown() -> None:
    """Serving on four 1g and training on 3g: (70/40 + 30/10) / 2 = 2.4; on three 1g and on 4g:
    (70/30 + 20/10) / 2 = 2.2."""
    seen = observation(view("a", history=[90.0] * 100, retraining=waiting()))
    assert written(MISO.decide(seen).slots[0]) == "4g@0:a* 1g@4:a 1g@5:a 1g@6:a"


def test_inference_that_keeps_up_is_not_slowed_down() -> None:
    """a answers its 5 a second anywhere, b needs all that is left."""
    a, b = view("a", history=[5.0] * 100), view("b", history=[90.0] * 100)
    for seen in (observation(a, b), observation(b, a)):
        instances = written(MISO.decide(seen).slots[0]).split()
        assert sorted(instance[-1] for instance in instances) == ["a", *"bbbbbb"]


def test_it_is_done_again_when_a_job_leaves() -> None:
    seen = observation(view("a", history=[90.0] * 100), slot=40, held="4g@0:a* 3g@4:a")
    assert MISO.on_completion
    assert written(MISO.decide(seen).slots[0]) == SEVEN


def test_a_running_retraining_stays_and_the_others_share_the_rest() -> None:
    a = view("a", history=[90.0] * 100, retraining=running("3g@4:a*", done=0.2))
    b = view("b", history=[90.0] * 100)
    seen = observation(a, b, slot=10, held="2g@0:a 2g@2:b 3g@4:a*")
    assert written(MISO.decide(seen).slots[0]) == "1g@0:b 1g@1:b 1g@2:a 1g@3:a 3g@4:a*"


def test_jobs_without_a_slice_wait() -> None:
    """Three to serve and three to retrain on four slices: the one least slowed down starts."""
    tenants = [view(name, retraining=waiting()) for name in "abc"]
    instances = written(MISO.decide(observation(*tenants, board="A30-24GB")).slots[0]).split()
    assert [word[:2] for word in instances] == ["1g"] * 4
    assert sum(word.endswith("*") for word in instances) == 1
