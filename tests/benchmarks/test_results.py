"""benchmarks/results.py: pages have the figures of their rows and say what measured them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import results
from benchmarks.results import PAGES, RESULTS, Age, Page, provenance, record

OTHER_ROWS = {
    *("api_cpu", "api_latency", "cluster_goodput", "cluster_recovery", "failed_estimates"),
    *("gateway", "h200-accuracies", "h200-depthwise", "h200-drivers", "h200-interference"),
    *("h200-live", "h200-live-comparison-profile", "h200-live-profile", "h200-mps-limits"),
    *("h200-profiles", "h200-profiles-again", "h200-published-profiles", "optional_retraining"),
    *("page_cost", "page_usable", "placement", "provenance", "reconfigurations"),
    *("simulated_live", "soak"),
}
"""Rows of sentences outside docs/results."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of docs/results."""
    return Path(shutil.copytree(RESULTS, tmp_path / "results"))


def page(name: str) -> Page:
    return next(listed for listed in PAGES if listed.name == name)


@pytest.mark.parametrize("listed", PAGES, ids=lambda listed: listed.name)
def test_a_page_has_the_figures_of_its_rows(listed: Page) -> None:
    assert list(listed.differences(RESULTS)) == []


def test_every_page_and_every_file_of_rows_is_listed() -> None:
    unmeasured = {listed.name for listed in PAGES if listed.age(RESULTS) is Age.NOT_MEASURED}
    assert all(page(name).command for name in unmeasured)
    pages = {path.stem for path in RESULTS.glob("*.md")}
    assert pages == {listed.name for listed in PAGES} - unmeasured
    rows = {Path(file).stem for listed in PAGES for file in listed.rows}
    kept = {path.stem for path in RESULTS.glob("*.json")}
    assert kept - rows == OTHER_ROWS
    # those whose rows were not kept say so
    for listed in PAGES:
        if listed.age(RESULTS) is Age.NOT_KEPT:
            text = (RESULTS / f"{listed.name}.md").read_text()
            assert "The rows of this page were not kept." in text


@pytest.mark.parametrize("name", ["survivors_gap", "live-grid"])
def test_a_figure_that_is_not_of_the_rows_is_found(folder: Path, name: str) -> None:
    path = folder / f"{name}.md"
    lines = path.read_text().splitlines()
    tables = page(name).tables
    made = lines if tables is None else tables(folder)
    at = lines.index([line for line in made if line.startswith("| ") and "%" in line][-1])
    digit = next(index for index, letter in enumerate(lines[at]) if letter in "0123456789")
    other = str((int(lines[at][digit]) + 1) % 10)
    lines[at] = lines[at][:digit] + other + lines[at][digit + 1 :]
    path.write_text("\n".join(lines) + "\n")
    assert any(f"{name}.md" in said for said in page(name).differences(folder))


def test_rows_that_changed_since_they_were_recorded_are_found(folder: Path) -> None:
    path = folder / "attack.json"
    path.write_text(path.read_text() + "\n")
    assert any("its rows are not those in" in said for said in page("attack").differences(folder))
    assert page("attack").age(folder) is Age.UNKNOWN


def test_a_page_says_whether_it_is_older_than_its_code(folder: Path) -> None:
    gap = page("survivors_gap")
    assert gap.age(folder) is Age.UNKNOWN
    record(gap, folder, "measure", 12.0)
    assert gap.age(folder) is Age.SAME
    recorded = provenance(folder)["survivors_gap"]
    assert recorded["code"] == gap.digest()
    assert f"measured with `measure`, commit {recorded['commit']}, code" in gap.last_line(folder)
    assert replace(gap, code=("core",)).age(folder) is Age.OLDER
    assert page("redesign").age(folder) is Age.NOT_KEPT


def test_a_page_is_measured_again_and_again_where_it_was_interrupted(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command stands in for a benchmark: it fails once, and keeps what it has done."""
    script = tmp_path / "measure.py"
    script.write_text(
        "import json, pathlib, sys\n"
        "work = pathlib.Path(sys.argv[1])\n"
        "first = not (work / 'done').exists()\n"
        "(work / 'done').touch()\n"
        "rows = json.loads(pathlib.Path(sys.argv[2]).read_text())\n"
        "(work / 'survivors_gap.json').write_text(json.dumps(rows | {'rows': rows['rows'][:60]}))\n"
        "sys.exit(first)\n"
    )
    monkeypatch.setattr(results, "WORK", tmp_path / "work")
    words = ("python", str(script), "{work}", str(RESULTS / "survivors_gap.json"))
    gap = replace(page("survivors_gap"), command=words)
    before = (folder / "survivors_gap.json").read_bytes()
    assert not results.run(gap, folder)
    assert (folder / "survivors_gap.json").read_bytes() == before
    assert results.run(gap, folder)
    assert len(json.loads((folder / "survivors_gap.json").read_text())["rows"]) == 60
    assert gap.age(folder) is Age.SAME
    assert provenance(folder)["survivors_gap"]["took_s"] > 0
