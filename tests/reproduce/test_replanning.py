"""The experiment beyond the paper, on made-up outcomes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.outcomes import run
from support.reproduction import outcomes_of

from migrator.core.outcome import RunOutcome
from migrator.report.page import Bars, Note, Section, Table, paint_of
from migrator.reproduce.experiment import Outcomes, Setting
from migrator.reproduce.replanning import NAMES, PAIRS, REPLANNING, WindowApart, pair_name
from migrator.simulate.compare import Job

TWO = Setting(most_windows=2)
ONE = replace(TWO, most_windows=1)
FIRST = ("twitter", "alibaba-steady")


def section(setting: Setting, outcomes: Outcomes | None = None) -> Section:
    return REPLANNING.section(setting, outcomes or outcomes_of(REPLANNING.jobs(setting)))


def pairs(outcomes: Outcomes) -> Any:
    return REPLANNING.figures(TWO, outcomes)["pairs"]


def as_if(outcomes: dict[Job, RunOutcome], pair: tuple[str, str], policy: str, like: str) -> None:
    """Give `policy` what `like` reached, on the first window of a pair."""
    jobs = {
        job.policy: job
        for job in outcomes
        if isinstance(job.source, WindowApart) and job.source.pair == pair
        if job.source.number == 0
    }
    outcomes[jobs[policy]] = replace(outcomes[jobs[like]], policy=policy)


def test_windows_are_cut_by_the_setting() -> None:
    assert len(REPLANNING.jobs(Setting())) == 3 * sum(PAIRS.values())
    assert len(REPLANNING.jobs(TWO)) == 3 * sum(min(2, each) for each in PAIRS.values())
    sources = [job.source for job in REPLANNING.jobs(TWO)]
    first = [each for each in sources if isinstance(each, WindowApart) and each.pair == FIRST]
    assert {(each.number, each.of) for each in first} == {(0, 2), (1, 2)}


def test_the_numbers_are_sums_over_the_windows() -> None:
    outcomes = outcomes_of(REPLANNING.jobs(TWO))
    found = pairs(outcomes)
    assert list(found) == [pair_name(pair) for pair in PAIRS]
    first = found[pair_name(FIRST)]
    runs = [outcomes[job] for job in REPLANNING.jobs(TWO)[:6]]
    once = [each.tally for each in runs if each.policy == "migrator-once"]
    assert first["received"] == sum(each.received for each in once)
    assert first["migrator-once"] == pytest.approx(sum(e.goodput for e in once) / first["received"])
    # made-up runs are late with 5, 4 and 2 requests, and half as many are dropped
    assert first["migrator-once"] < first["migrator-replanned"] < first["oracle"]
    assert (first["windows"], first["windows_better"], first["windows_worse"]) == (2, 2, 0)
    lead = first["oracle"] - first["migrator-once"]
    regained = first["migrator-replanned"] - first["migrator-once"]
    assert first["regained"] == pytest.approx(regained / lead)


def test_a_window_that_replanning_made_worse_is_counted() -> None:
    outcomes = outcomes_of(REPLANNING.jobs(TWO))
    as_if(outcomes, FIRST, "migrator-once", "oracle")
    found = pairs(outcomes)
    assert found[pair_name(FIRST)]["windows_worse"] == 1
    assert found[pair_name(FIRST)]["windows_better"] == 1
    assert found["batch + azure"]["windows_worse"] == 0


def test_the_three_stand_side_by_side() -> None:
    shares, above, table, *_ = section(TWO).blocks
    assert isinstance(shares, Bars)
    assert isinstance(above, Bars)
    assert isinstance(table, Table)
    assert shares.categories == above.categories == tuple(map(pair_name, PAIRS))
    assert [each.name for each in shares.series] == list(NAMES)
    assert [each.name for each in above.series] == ["replanned", "oracle"]
    assert [each.paint for each in above.series] == [paint_of(1), paint_of(2)]
    once, again = shares.series[0].values[0], shares.series[1].values[0]
    assert once is not None
    assert again is not None
    assert above.series[0].values[0] == pytest.approx(100 * (again - once))
    assert table.rows[0][3] == f"{100 * once:.2f}"


def summaries(outcomes: Outcomes) -> dict[tuple[str, str], str]:
    """What the last note says of every pair."""
    *_, differs = section(ONE, outcomes).blocks
    assert isinstance(differs, Note)
    return dict(zip(PAIRS, differs.paragraphs[0].split("; "), strict=True))


def test_what_is_regained_is_said_by_pair() -> None:
    outcomes = outcomes_of(REPLANNING.jobs(ONE))
    as_if(outcomes, FIRST, "migrator-replanned", "oracle")
    as_if(outcomes, ("batch", "azure"), "oracle", "migrator-once")
    found = summaries(outcomes)
    assert ", 100% of the oracle's +" in found[FIRST]
    assert ", 25% of the oracle's +" in found["alibaba", "azure"]
    assert "where the oracle has no lead to regain" in found["batch", "azure"]


def test_a_pair_on_which_replanning_falls_behind_regains_none() -> None:
    outcomes = outcomes_of(REPLANNING.jobs(ONE))
    job = replace(REPLANNING.jobs(ONE)[0], policy="migrator-replanned")
    assert job in outcomes
    outcomes[job] = run("migrator-replanned", windows=1, late=20)
    assert summaries(outcomes)[FIRST].startswith(
        f"There is nothing to differ from. Ours: on {pair_name(FIRST)} \u2212"
    )
    assert ", none of the oracle's +" in summaries(outcomes)[FIRST]


def test_the_text_says_that_the_paper_has_no_such_thing(tmp_path: Path) -> None:
    words = " ".join(section(TWO).paragraphs)
    assert "beyond the paper, which plans once per window" in words
    assert "are generated" not in words
    (tmp_path / "twitter_2021.csv").write_text("second,count\n0,1\n", encoding="utf-8")
    words = " ".join(section(replace(TWO, data=tmp_path)).paragraphs)
    assert "alibaba-steady, alibaba, azure, azure-bursty and batch are generated" in words
