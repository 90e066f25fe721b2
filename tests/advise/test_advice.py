"""Advice: what is tried, what is changed, and what is said about it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.scenarios import drift, scenario, tenant
from typer.testing import CliRunner

from migrator.advise.advice import LOADS, Advice, Change, ChangedSource, board_load, consult
from migrator.advise.advice_report import advice_json, advice_text, sentences
from migrator.advise.leads import OURS, RIVALS, STATIC
from migrator.advise.trial import TrialResult, WindowResult
from migrator.cli import app
from migrator.core.errors import InputError
from migrator.core.scenario import Scenario
from migrator.forecast.selection import forecaster
from migrator.policies.registry import policy
from migrator.simulation.run import run

WINDOWS = (drift(0.5, 0.9), drift(0.45, 0.8))


def make(seed: int | None, windows: int | None) -> Scenario:
    """One GPC answers 100 requests a second: three of seven are needed."""
    tenants = (tenant("a", [200] * 40, drifts=WINDOWS), tenant("b", [100] * 40))
    return replace(
        scenario(*tenants, windows=windows or 2), policy="migrator", forecaster="last-mean",
        seed=seed or 0,
    )  # fmt: skip


def cold(seed: int | None, windows: int | None) -> Scenario:
    return replace(make(seed, windows), prepared=False)


def _result(ours: float, theirs: float, static: float) -> TrialResult:
    goodput = dict.fromkeys(RIVALS, theirs) | {OURS: ours, STATIC: static}
    return TrialResult((WindowResult(1000, 900.0, goodput),) * 2, "static-6-1")


def _advice(static: float = 480.0) -> Advice:
    consultation = consult(make)
    results = {key: _result(600, 500, static) for key in consultation.trials()}
    for load, change, seed in results:
        if load == 0.5:
            results[load, change, seed] = _result(660, 655, 659)
        if change is Change.SHORTER:
            results[load, change, seed] = _result(720, 0, 0)
    return consultation.advice(results)


def test_two_windows_are_run_with_two_seeds() -> None:
    consultation = consult(make)
    assert (consultation.windows, consultation.seeds) == (2, (0, 1))
    trials = consultation.trials()
    assert {load for load, change, _ in trials if change is None} == set(LOADS)
    tried = {change for _, change, _ in trials if change is not None}
    assert tried == {Change.SHORTER, Change.BOARD}
    assert consultation.unused == {Change.PREPARED: "they are already"}
    assert Change.PREPARED not in consult(cold).unused
    assert consult(make, 4).seeds == (0,)


def test_the_load_of_the_board_is_that_of_the_run() -> None:
    # one instance of all 132 SMs answers 825 a second, seven small ones 700
    assert board_load(make(None, None)) == pytest.approx(300 / 825)


def test_a_load_beyond_the_board_is_run() -> None:
    twice = ChangedSource(ChangedSource(make, 2.0), 2.0)(0, 1)
    assert board_load(twice) > 1
    outcome = run(twice, policy("equal-mig"), forecaster("last-mean"))
    assert outcome.tally.received == 4 * 3000
    assert 0 < outcome.tally.slo_attainment < 1


def test_changes_change_only_what_they_say() -> None:
    before = make(0, 2)
    unchanged = ChangedSource(make)(0, 2)
    assert [served.drifts for served in unchanged.tenants] == [
        served.drifts for served in before.tenants
    ]
    shorter = ChangedSource(make, change=Change.SHORTER)(0, 2).tenants[0].drifts
    assert [drift.accuracy_post for drift in shorter] == [0.9, 0.8]
    assert [drift.seconds and drift.seconds.at(16) for drift in shorter] == [20, 20]
    larger = ChangedSource(make, change=Change.BOARD)(0, 2)
    assert larger.board.sms > before.board.sms
    assert {served.service.profile.board for served in larger.tenants} == {larger.board.name}
    assert ChangedSource(cold, change=Change.PREPARED)(0, 2).prepared


def test_nothing_to_retrain_leaves_fewer_changes_to_try() -> None:
    def still(seed: int | None, windows: int | None) -> Scenario:
        return replace(make(seed, windows), tenants=make(seed, windows).tenants[1:])

    assert consult(still).unused[Change.SHORTER] == "nothing is retrained"


def test_a_scenario_without_requests_is_refused() -> None:
    def silent(seed: int | None, windows: int | None) -> Scenario:
        made = make(seed, windows)
        return replace(made, tenants=(tenant("a", [0] * 40),))

    with pytest.raises(InputError, match="no request comes"):
        consult(silent)


def test_the_answer_in_words() -> None:
    advice = _advice()
    answer, compared, elsewhere, helps = sentences(advice)
    assert answer.startswith("Yes, dynamic reconfiguration pays, at today's load (0.36")
    assert "25.0% (±0.0) more" in compared
    assert "(static-6-1)" in compared
    assert "20.0% (±0.0) more than the best peer" in compared
    assert "no planner could answer more than 50.0% more" in compared
    assert "At 0.5 times the load a static split will do (+0.2% over static)" in elsewhere
    assert "most: retraining in half the time (+20.0%); then a second GPU" in helps
    assert advice.changes[Change.SECOND] == pytest.approx(0.1)
    assert "prepared workers: they are already" in helps
    assert "x 1.5" in advice_text(advice)
    json.dumps(advice_json(advice), allow_nan=False)
    assert next(sentences(_advice(595))).startswith("No, a static split will do")


def test_bad_input_is_one_sentence(tmp_path: Path) -> None:
    def error(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["advise", *arguments])
        assert isinstance(done.exception, InputError), done.output
        return str(done.exception)

    file = tmp_path / "my.yaml"
    assert "my.yaml" in error(str(file))
    file.write_text("version: 1\ncluster: {gpus: [{}]}\ntenants: []\n", encoding="utf-8")
    error(str(file))
    file.write_text(TINY, encoding="utf-8")
    assert "--windows: 0 is out of range" in error(str(file), "--windows", "0")


TINY = """
version: 1
window_s: 4
windows: 4
tenants:
  - model: resnet-50
    slo_ms: 100
    arrivals: {generator: poisson, mean_rps: 500}
  - model: mobilenet-v2
    slo_ms: 100
    arrivals: {generator: azure, mean_rps: 900}
    retraining:
      windows: [{accuracy_pre: 0.4, accuracy_post: 0.9, seconds: {1: 2}}]
"""


def test_the_verb_prints_json(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text(TINY, encoding="utf-8")
    done = CliRunner().invoke(app, ["advise", str(file), "--processes", "1", "--json"])
    assert done.exit_code == 0, done.exception
    parsed_json = json.loads(done.stdout.splitlines()[-1])
    assert [load["times"] for load in parsed_json["loads"]] == list(LOADS)
    assert parsed_json["answer"][0].endswith("of the board).")
