"""MISO by hand: one slice per job, mean slowdowns worked out beside each case."""

from __future__ import annotations

from support.mig_views import observation, running, view, waiting, written

from migrator.policies.miso import POLICIES

(MISO,) = POLICIES


def test_a_job_alone_has_the_whole_board() -> None:
    assert written(MISO.decide(observation(view("a"))).slots[0]) == "7g@0:a"


def test_the_least_mean_slowdown() -> None:
    """Serving on 4g and training on 3g: (45/31 + 30/10) / 2 = 2.2; the other way round:
    (45/25 + 20/10) / 2 = 1.9."""
    seen = observation(view("a", history=[90.0] * 100, retraining=waiting()))
    assert written(MISO.decide(seen).slots[0]) == "4g@0:a* 3g@4:a"


def test_inference_that_keeps_up_is_not_slowed_down() -> None:
    """a answers its 5 a second anywhere, b loses on anything less than the whole board."""
    a, b = view("a", history=[5.0] * 100), view("b", history=[90.0] * 100)
    assert written(MISO.decide(observation(a, b)).slots[0]) == "4g@0:b 3g@4:a"
    assert written(MISO.decide(observation(b, a)).slots[0]) == "4g@0:b 3g@4:a"


def test_it_is_done_again_when_a_job_leaves() -> None:
    seen = observation(view("a", history=[90.0] * 100), slot=40, held="4g@0:a* 3g@4:a")
    assert MISO.on_completion
    assert written(MISO.decide(seen).slots[0]) == "7g@0:a"


def test_a_running_retraining_stays_and_the_others_share_the_rest() -> None:
    a = view("a", history=[90.0] * 100, retraining=running("3g@4:a*", done=0.2))
    b = view("b", history=[90.0] * 100)
    seen = observation(a, b, slot=10, held="2g@0:a 2g@2:b 3g@4:a*")
    assert written(MISO.decide(seen).slots[0]) == "2g@0:a 2g@2:b 3g@4:a*"


def test_jobs_without_a_slice_wait() -> None:
    """Three to serve and three to retrain on four slices: the one least slowed down starts."""
    tenants = [view(name, retraining=waiting()) for name in "abc"]
    found = written(MISO.decide(observation(*tenants, board="A30-24GB")).slots[0]).split()
    assert [word[:2] for word in found] == ["1g"] * 4
    assert sum(word.endswith("*") for word in found) == 1
