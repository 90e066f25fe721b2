"""The limits of peers: each changes what it is about, and nothing for policies without it."""

from dataclasses import replace

import pytest
from support.mps_observation import BOARD, Seen, observation, shares
from support.scenarios import Fixed, Flat, drift, profile, scenario, share, tenant

from migrator.core.catalogue import boards
from migrator.core.problem import Kind, Share
from migrator.core.profiles import Service, profiles
from migrator.core.profiles import profile as packaged
from migrator.core.scenario import (
    DEFAULT_LIMITS,
    Overlap,
    PeerLimits,
    ResizedTraining,
    Scenario,
    ShareSizes,
)
from migrator.policies.policy import Sharing, Sight
from migrator.policies.registry import policy
from migrator.records.outcome import RunOutcome
from migrator.simulation.durations import overheads_s
from migrator.simulation.run import run

MPS_PEERS = ("ekya", "astraea", "gpulet", "infless", "equal-mps")
RESNET = Service("a", packaged("resnet-50", BOARD.name), 0.1, 1)
GIFTS = PeerLimits(13.2, ShareSizes.ANY, ResizedTraining.FREE, Overlap.UNLIMITED)


class Blind(Fixed):
    """A policy that does not look ahead."""

    sight = Sight.NOTHING
    estimates = False


def processes(name: str, limits: PeerLimits) -> list[Share]:
    """The processes of a busy tenant that has the GPU to itself."""
    seen = observation(Seen(RESNET, [9000.0] * 200), limits=limits)
    return shares(policy(name).decide(seen))


@pytest.mark.parametrize("name", MPS_PEERS)
def test_a_process_has_at_least_the_smallest_share(name: str) -> None:
    any_share = replace(GIFTS, min_sms=None)
    assert len(processes(name, GIFTS)) == 10
    assert len(processes(name, any_share)) == 8
    assert min(process.percent for process in processes(name, any_share)) >= 100 * 16 / 132 - 1e-6
    assert BOARD.sms_of(1) == 16
    assert PeerLimits().least_sms(boards()["A100-40GB"]) == 14


@pytest.mark.parametrize("name", MPS_PEERS)
def test_a_process_has_a_share_of_the_runtime(name: str) -> None:
    sms = [process.percent * 1.32 for process in processes(name, DEFAULT_LIMITS)]
    assert sms == pytest.approx([16] * 8)
    assert not DEFAULT_LIMITS.allows_any_share(BOARD)
    assert DEFAULT_LIMITS.allows_any_share(boards()["A100-40GB"])


def moved(limits: PeerLimits, *percents: float) -> RunOutcome:
    """A retraining of 40 s on 16 SMs, five seconds on each of these shares and then on the last."""
    serving = share("a", 25.0)
    slots = [
        (serving, share("a", percent, Kind.RETRAINING)) for percent in percents for _ in range(5)
    ]
    this = scenario(tenant("a", [1] * 40, drifts=(drift(),)), window_s=40)
    return run(replace(this, peers=limits), Blind(*slots, sharing=Sharing.MPS), Flat(), spread=0.0)


def ended_s(limits: PeerLimits, *percents: float) -> float:
    seconds = moved(limits, *percents).windows[0].tenants[0].retrained_s
    assert seconds is not None
    return seconds


@pytest.mark.parametrize(
    ("what", "ends_s"),
    [
        # 9.7 s on half of the SMs, after one second to start: 41% are done when it is moved to a
        # quarter of them, where the whole takes 19.4 s
        (ResizedTraining.FREE, 5 + (1 - 4 / 9.697) * 19.394),
        # four of twelve checkpoints are written by then, and the new process starts for a second
        (ResizedTraining.RESTARTS, 5 + 1 + (1 - 4 / 12) * 19.394),
        (ResizedTraining.STAYS, 1 + 9.697),
    ],
)
def test_a_retraining_with_another_share(what: ResizedTraining, ends_s: float) -> None:
    limits = PeerLimits(resized_training=what)
    assert ended_s(limits, 50.0, 25.0) == pytest.approx(ends_s, rel=0.01)
    assert ended_s(limits, 50.0) == pytest.approx(1 + 9.697, rel=0.01)  # it is not resized


def test_a_retraining_that_is_moved_often_still_ends_once() -> None:
    outcome = moved(PeerLimits(), 50.0, 25.0, 50.0, 25.0, 50.0)
    (window,) = outcome.windows
    assert window.tenants[0].accuracy_after == 0.9
    # what is learned of durations is as planned: nothing of the moves counts as slow training
    free = moved(PeerLimits(resized_training=ResizedTraining.FREE), 50.0, 25.0, 50.0, 25.0, 50.0)
    assert free.windows[0].tenants[0].accuracy_after == 0.9


def answered(limits: PeerLimits, *percents: float) -> int:
    """Requests in time on processes of these shares, far more than they can answer."""
    model = profile(ms=10.0, interference=0.0)
    slots = tuple(share("a", percent, number=place) for place, percent in enumerate(percents))
    this = replace(scenario(tenant("a", [3000] * 5, model=model), window_s=5), peers=limits)
    return int(run(this, Blind(slots, sharing=Sharing.MPS), Flat()).tally.in_time)


def test_processes_that_overlap_have_the_sms_of_one_gpu() -> None:
    unlimited = PeerLimits(overlap=Overlap.UNLIMITED)
    whole = answered(PeerLimits(), 50.0, 50.0)
    assert answered(unlimited, 50.0, 50.0) == whole
    assert answered(PeerLimits(), 75.0, 75.0) == pytest.approx(whole, rel=0.02)
    assert answered(unlimited, 75.0, 75.0) == pytest.approx(1.5 * whole, rel=0.02)


def test_workers_are_cold_for_policies_that_do_not_look_ahead() -> None:
    cold = PeerLimits(prepared=False)
    assert ended_s(cold, 50.0) - ended_s(PeerLimits(), 50.0) == pytest.approx(8, abs=0.1)
    ahead, blind = Fixed((share("a", 50.0),)), Blind((share("a", 50.0),))
    assert overheads_s(_pair(cold), ahead) == overheads_s(_pair(PeerLimits()), ahead)
    assert overheads_s(_pair(cold), blind) == {"a": 9.5, "b": 9.5}


@pytest.mark.parametrize("name", ["migrator-paper", "paris-reconfiguring"])
def test_limits_of_mps_change_nothing_under_mig(name: str) -> None:
    def goodput(limits: PeerLimits) -> float:
        return run(_pair(limits), policy(name), Flat()).tally.goodput

    assert goodput(GIFTS) == goodput(DEFAULT_LIMITS)


def _pair(limits: PeerLimits) -> Scenario:
    both = (tenant(name, [300] * 40, drifts=(drift(),)) for name in "ab")
    return replace(scenario(*both, window_s=20), peers=limits)


def test_memory_suffices_for_old_and_new_processes_at_once() -> None:
    # twice eight processes that serve and two that train, of the largest packaged model
    packaged = [profile for (_, on), profile in profiles().items() if on == BOARD.name]
    serving = max(profile.serving_mib(16) for profile in packaged)
    training = max(profile.training_mib for profile in packaged)
    assert 2 * (8 * serving + 2 * training) < BOARD.memory_mib_of(BOARD.sizes[-1])
