"""Steps that the executor skips would have done nothing."""

import pytest
from support.scenarios import drift, scenario, tenant

from migrator.control.executor import Executor
from migrator.control.timeline import Timeline
from migrator.forecast.selection import forecaster
from migrator.policies.registry import policy
from migrator.records.outcome import RunOutcome
from migrator.simulation.run import run

RISING = [40 + 4 * second for second in range(60)]
FALLING = RISING[::-1]


def _outcome(name: str) -> RunOutcome:
    drifts = (drift(0.5, 0.9, 12.0), drift(0.4, 0.8, 12.0))
    tenants = tenant("a", RISING, drifts=drifts), tenant("b", FALLING, drifts=drifts)
    return run(scenario(*tenants, window_s=30.0, windows=2), policy(name), forecaster("last-mean"))


@pytest.mark.parametrize("name", ["astraea", "ekya", "paris-reconfiguring", "migrator-paper"])
def test_skipped_steps_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    skipped = []
    is_settled = Executor._is_settled

    def counted(self: Executor, timeline: Timeline, now_s: float) -> bool:
        settled = is_settled(self, timeline, now_s)
        skipped.append(settled)
        return settled

    monkeypatch.setattr(Executor, "_is_settled", counted)
    outcome = _outcome(name)
    monkeypatch.setattr(Executor, "_is_settled", lambda *_: False)
    every_step = _outcome(name)
    assert sum(skipped) > 10
    assert [window.tally for window in outcome.windows] == [
        window.tally for window in every_step.windows
    ]
    assert [window.slots for window in outcome.windows] == [
        window.slots for window in every_step.windows
    ]
    assert outcome.reconfigurations == every_step.reconfigurations
