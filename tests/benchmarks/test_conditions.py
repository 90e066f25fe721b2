"""Runs under other conditions, and the sentences that follow from their rows."""

from support.reproduction import outcome_of

from benchmarks import conditions
from benchmarks.conditions import COLD, SupposedSource, Supposition
from migrator.records.outcome import RunOutcome
from migrator.reproduce.experiment import Setting
from migrator.reproduce.sources import WorkloadSource
from migrator.simulation.compare import SimulationJob

SMALL = Setting(workloads=("W1",), most_windows=1)
POINTS = {"as run": {"ekya": 0.5, "astraea": 0.4}, COLD: {"ekya": 0.45, "astraea": 0.4}}


def outcomes() -> dict[SimulationJob, RunOutcome]:
    return {job: outcome_of(job) for job in conditions.jobs(SMALL)}


def test_conditions_are_other_runs_of_the_same_policies() -> None:
    jobs = conditions.jobs(SMALL)
    assert {job.policy for job in jobs} == {"ekya", "astraea"}
    # as run, with cold workers, and under each supposition
    assert len(set(jobs)) == (2 + len(Supposition)) * 2


def test_suppositions_change_what_they_say() -> None:
    source = WorkloadSource("W7")
    plain = source(0, 1)
    small = SupposedSource(source, Supposition.SMALL_BOARD)(0, 1)
    assert (plain.board.sms, small.board.sms) == (132, 112)
    assert small.board.sms_of(1) == plain.board.sms_of(1)
    assert [tenant.service for tenant in small.tenants] == [
        tenant.service for tenant in plain.tenants
    ]
    still = SupposedSource(source, Supposition.NO_INTERFERENCE)(0, 1)
    assert {tenant.service.profile.interference for tenant in still.tenants} == {0.0}
    assert still.board == plain.board


def test_several_processes_answer_more_than_one() -> None:
    gains = conditions.processes_gain()
    assert set(gains) >= {"resnet-50", "bert-base"}
    assert min(gains.values()) > 1


def test_the_page_has_a_row_per_condition() -> None:
    figures = conditions.figures(SMALL, outcomes())
    page = conditions.text(figures, "COMMAND")
    rows = [line.split(" | ")[0] for line in page.splitlines() if line.startswith("| ")]
    assert rows == [
        *("| condition", "| ---", "| as run", "| cold workers"),
        *(f"| {supposition}" for supposition in Supposition),
    ]
    goodput = figures["mps_peers_by_condition"]["as run"]["ekya"]
    assert f"| as run | {goodput:.1%} (" in page
    # made-up runs are alike under every condition
    assert "None of them changes ekya by a tenth of a point." in page


def test_the_condition_that_matters_most_is_named_by_peer() -> None:
    ekya, astraea = conditions.condition_sentences(POINTS)
    assert ekya == "What changes ekya most: cold workers (\u22125.0 points)."
    assert astraea == "None of them changes astraea by a tenth of a point."
