import pytest
from support.reproduction import outcomes_of

from migrator.reproduce import conditions
from migrator.reproduce.experiment import Setting

SMALL = Setting(workloads=("W1",), most_windows=1)


def _found() -> conditions.ConditionResults:
    return conditions.measure_conditions(SMALL, outcomes_of(conditions.jobs(SMALL)))


def test_conditions_are_other_runs_of_the_same_policies() -> None:
    jobs = conditions.jobs(SMALL)
    assert {job.policy for job in jobs} == {
        "migrator-paper",
        "ekya",
        "astraea",
        "paris-reconfiguring",
    }
    # three loads of four policies, and three conditions of two
    assert len(set(jobs)) == 3 * 4 + 3 * 2 + 4


def test_several_processes_answer_more_than_one() -> None:
    gains = conditions.processes_gain()
    assert set(gains) >= {"resnet-50", "bert-base"}
    assert min(gains.values()) > 1


def test_changes_are_in_points() -> None:
    found = _found()
    # made-up runs are alike under every condition
    assert found.change(conditions.COLD, "ekya") == pytest.approx(0)
    sentences = list(found.sentences())
    assert "ekya has +0.0 and astraea has +0.0 points" in sentences[1]
    assert "at 0.4 and 0.8 of the board" in sentences[2]
    assert [len(each.rows) for each in found.tables()] == [3, 4]
