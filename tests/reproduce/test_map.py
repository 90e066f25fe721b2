"""The map: a cell by hand, its runs, and a map that is killed and continued."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from migrator.advise.leads import OURS, RIVALS, STATIC
from migrator.advise.trial import TrialResult, WindowResult
from migrator.cli import app
from migrator.core.errors import InputError
from migrator.report.html_page import write_figure, write_page
from migrator.reproduce.map import MapSetting, measured
from migrator.reproduce.map_cells import BASE, TRACES, CellSource, Gain
from migrator.reproduce.map_page import (
    class_map,
    map_figures,
    map_page,
    map_picture,
    nearest_to_paper,
)
from migrator.reproduce.results_file import open_results
from migrator.workload.capacity import highest_rps

QUICK = MapSetting(quick=True, runs=5)


def _made_up(ours: float, theirs: float, static: float) -> TrialResult:
    """A run of 1,000 requests and a ceiling of 900."""
    goodput = dict.fromkeys(RIVALS, theirs) | {OURS: ours, STATIC: static}
    return TrialResult((WindowResult(1000, 900.0, goodput, goodput),), "static-6-1")


def _finished(setting: MapSetting) -> dict[tuple[str, int], TrialResult]:
    return {key: _made_up(600, 500, 590) for key in setting.trials()}


def test_a_cell_by_hand() -> None:
    finished = _finished(QUICK)
    cell = QUICK.grid[0][0]
    for run in range(5):
        finished[cell.key, run] = _made_up(600 + 10 * run, 500, 480)
    leads = measured(QUICK, finished).leads[cell]
    assert leads.goodput == pytest.approx(0.62)
    assert leads.ceiling == pytest.approx(0.9)
    over = leads.over["ekya"]
    assert over is not None
    assert over.mean == pytest.approx(0.24)
    # 0.60 to 0.64 in steps of 0.01 around 0.62: deviation 0.0158, t of four degrees 2.776
    assert over.half_width == pytest.approx(2.7764 * 0.0158114 / 5**0.5 / 0.5, rel=1e-4)
    assert leads.most["ekya"] == pytest.approx(0.8)
    assert leads.most[STATIC] == pytest.approx(0.875)


def test_every_run_has_other_models_places_and_windows_of_the_data() -> None:
    runs = [CellSource(BASE, number, 8)(number, 2) for number in range(8)]
    assert len({tuple(tenant.name for tenant in run.tenants) for run in runs}) == 8
    assert len({run.tenants[0].offset_s for run in runs}) == 8
    # the published levels, from another window on in every run
    assert runs[0].tenants[0].drifts[0].accuracy_pre == 0.4933
    assert runs[1].tenants[0].drifts[0].accuracy_pre == 0.63


@pytest.mark.parametrize("traces", TRACES)
def test_the_load_is_that_of_the_run(traces: str) -> None:
    made = CellSource(replace(BASE, load=0.6, traces=traces, tenants=3), 1, 5)(1, 2)
    assert len({tenant.name for tenant in made.tenants}) == 3
    for tenant in made.tenants:
        run = tenant.trace.counts[tenant.offset_s : tenant.offset_s + 400]
        assert run.mean() == pytest.approx(0.2 * highest_rps(tenant.service, made.board), rel=1e-3)


def test_tenants_of_one_trace_begin_at_different_places() -> None:
    made = CellSource(replace(BASE, traces="tweets", tenants=4), 0, 8)(0, 1)
    assert len({tenant.offset_s for tenant in made.tenants}) == 4


def test_gain_and_length_change_only_what_they_say() -> None:
    packaged = CellSource(replace(BASE, gain=Gain.PACKAGED), 0, 5)(0, 2).tenants[1]
    paper = CellSource(replace(BASE, gain=Gain.PAPER, length=2.0), 0, 5)(0, 2).tenants[1]
    assert np.array_equal(packaged.trace.counts, paper.trace.counts)
    for window, (a, b) in enumerate(zip(packaged.drifts, paper.drifts, strict=False)):
        assert a.seconds is not None
        assert b.seconds == a.seconds.scaled(2.0)
        assert b.accuracy_post - b.accuracy_pre == pytest.approx(0.30)
        assert b.accuracy_pre == pytest.approx(0.9 - 0.025 * window - 0.325)


def test_the_full_map_varies_one_condition_at_a_time() -> None:
    cells = MapSetting().cells
    assert len(cells) == len(set(cells)) == 7 * 3 + 3 + 5 + 2 + 1
    outside = [cell for cell in cells if replace(cell, load=BASE.load, gain=BASE.gain) != BASE]
    for cell in outside:
        assert sum(getattr(cell, n) != getattr(BASE, n) for n in BASE.__dataclass_fields__) == 1


def test_the_page_says_where_it_pays(tmp_path: Path) -> None:
    finished = _finished(QUICK)
    pays, near = QUICK.grid[1][2], QUICK.grid[2][1]
    for run in range(5):
        finished[pays.key, run] = _made_up(700, 400, 450)
        finished[near.key, run] = _made_up(595, 500, 505)
    results = measured(QUICK, finished)
    chart = class_map(results)
    assert chart.classes[chart.cells[1][2][0]][0] == "MIGRator pays"
    assert chart.cells[1][2][1] == "+56% over static\n+75% over ekya"
    assert chart.classes[chart.cells[0][0][0]][0] == "a static split will do"
    assert nearest_to_paper(results) == near
    assert chart.marked == (2, 1)
    write_page(map_page(results), tmp_path / "map.html")
    assert "Where the paper" in (tmp_path / "map.html").read_text(encoding="utf-8")
    picture = tmp_path / "map.png"
    write_figure(picture, "--out", lambda: map_page(results), lambda: map_picture(results))
    assert picture.read_bytes().startswith(b"\x89PNG")
    figures = json.loads(json.dumps(map_figures(results), allow_nan=False))
    assert len(figures["cells"]) == 9


# The results file

SETTINGS = {"runs": 5}
KEY = ("cell", 0)
EXPECTED = frozenset({KEY, ("cell", 1)})


def _kept(path: Path) -> dict[tuple[str, int], TrialResult]:
    with open_results(path, "map", TrialResult, SETTINGS, EXPECTED) as file:
        return dict(file.finished)


def test_results_are_kept(tmp_path: Path) -> None:
    path, result = tmp_path / "map.jsonl", _made_up(600, 500, 400)
    with open_results(path, "map", TrialResult, SETTINGS, EXPECTED) as file:
        file.add(KEY, result)
        with (
            pytest.raises(InputError, match="another process writes"),
            open_results(path, "map", TrialResult, SETTINGS, EXPECTED),
        ):
            pass
    assert _kept(path) == {KEY: result}


def test_an_unfinished_line_is_run_again(tmp_path: Path) -> None:
    path, result = tmp_path / "map.jsonl", _made_up(600, 500, 400)
    with open_results(path, "map", TrialResult, SETTINGS, EXPECTED) as file:
        file.add(KEY, result)
        whole = path.read_bytes()
        file.add(("cell", 1), result)
    path.write_bytes(path.read_bytes()[:-30])
    assert _kept(path) == {KEY: result}
    assert path.read_bytes() == whole
    path.write_bytes(whole[:9])
    assert _kept(path) == {}


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda lines: [b"hello", *lines[1:]], "is not a results file"),
        (lambda _: [b"hello"], "is not a results file"),
        (lambda lines: [lines[0].replace(b'"runs":5', b'"runs":6'), *lines[1:]], r"other .*\(runs"),
        (lambda lines: [lines[0], b"{}", *lines[1:]], "line 2 of .* is damaged"),
        (lambda lines: [lines[0], lines[1].replace(b"600", b'"x"')], "line 2 of .* is damaged"),
        (lambda lines: [*lines, lines[1]], "line 3 of .* is damaged"),
        (lambda lines: [lines[0], lines[1].replace(b'"run":0', b'"run":9')], "line 2"),
    ],
)
def test_other_and_damaged_files_are_refused(
    tmp_path: Path, spoil: Callable[[list[bytes]], list[bytes]], sentence: str
) -> None:
    path = tmp_path / "map.jsonl"
    with open_results(path, "map", TrialResult, SETTINGS, EXPECTED) as file:
        file.add(KEY, _made_up(600, 500, 400))
    lines = path.read_bytes().splitlines()
    spoilt = b"\n".join(spoil(lines)) + b"\n"
    path.write_bytes(spoilt)
    with pytest.raises(InputError, match=f"--results: .*{sentence}"):
        _kept(path)
    assert path.read_bytes() == spoilt


def test_an_unfinished_map_is_drawn_from_the_runs_of_all_cells() -> None:
    setting = MapSetting(quick=True, runs=8)
    assert list(dict.fromkeys(number for _, number in setting.trials())) == [0, 4, 2, 6, 1, 5, 3, 7]
    keys = list(setting.trials())[: 3 * len(setting.cells) + 1]  # three runs, and one of a cell
    finished = {key: _made_up(600 + key[1], 500, 590) for key in keys}
    results = measured(setting, finished)
    assert results.numbers == (0, 2, 4)
    assert {lead.samples for lead in results.leads.values()} == {3}
    assert results.leads[BASE_OF_QUICK].goodput == pytest.approx((600 + 602 + 604) / 3000)
    assert "3 runs per cell (of 8" in map_page(results).lead


BASE_OF_QUICK = QUICK.cells[0]


def test_drawing_needs_runs_and_no_equal_code(tmp_path: Path) -> None:
    path = tmp_path / "map.jsonl"
    settings = {**QUICK.as_json(), "code": "other"}
    command = ["reproduce", "map", "--quick", "--draw", "--out", str(tmp_path / "map.html")]
    assert "run the map first" in str(CliRunner().invoke(app, command).exception)
    keys = frozenset(QUICK.trials())
    with open_results(path, "map", TrialResult, settings, keys):
        pass
    assert "no run of every cell" in str(CliRunner().invoke(app, command).exception)
    with open_results(path, "map", TrialResult, settings, keys) as file:
        for key in keys:
            if key[1] < 2:
                file.add(key, _made_up(600, 500, 590))
    done = CliRunner().invoke(app, [*command, "--json"])
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    assert shown["cells"][0]["runs"] == 2
    assert shown["settings"]["code"] == "other"  # what made the results, not what draws them


def test_a_map_is_drawn_while_another_process_runs_it(tmp_path: Path) -> None:
    path = tmp_path / "map.jsonl"
    command = ["reproduce", "map", "--quick", "--draw", "--out", str(tmp_path / "map.html")]
    keys = frozenset(QUICK.trials())
    with open_results(path, "map", TrialResult, QUICK.as_json(), keys) as file:
        for key in keys:
            if key[1] == 0:
                file.add(key, _made_up(600, 500, 590))
        with path.open("ab") as unfinished:
            unfinished.write(b'{"cell":')  # it writes just now
        before = path.read_bytes()
        done = CliRunner().invoke(app, [*command, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["cells"][0]["runs"] == 1
    assert path.read_bytes() == before


# The verb


def test_options_of_the_map_belong_to_the_map(tmp_path: Path) -> None:
    def error(*arguments: str) -> str:
        return str(CliRunner().invoke(app, ["reproduce", *arguments]).exception)

    assert "only for the experiment map" in error("goodput", "--quick")
    assert "without it" in error("map", "goodput")
    assert "not for the experiment map" in error("map", "--windows", "3")
    page = str(tmp_path / "map.html")
    assert "5 runs per cell or more" in error("map", "--seeds", "2", "--out", page)
    (tmp_path / "map.jsonl").write_text("hello\n", encoding="utf-8")
    assert "is not a results file" in error("map", "--quick", "--out", page)


def test_a_map_that_is_killed_continues(tmp_path: Path) -> None:
    """Kill the verb after its first runs; a second call keeps them."""
    page, path = tmp_path / "map.html", tmp_path / "map.jsonl"
    command = [sys.executable, "-m", "migrator", "reproduce", "map", "--quick", "--processes", "1"]
    env = {key: value for key, value in os.environ.items() if key != "MIGRATOR_DATA"}
    verb = subprocess.Popen([*command, "--out", str(page)], env=env, stderr=subprocess.DEVNULL)
    try:
        _wait_for(lambda: path.exists() and path.read_bytes().count(b"\n") >= 2, verb)
    finally:
        verb.send_signal(signal.SIGKILL)
        verb.wait()
    before = path.read_bytes().splitlines()
    again = subprocess.Popen(
        [*command, "--out", str(page)], env=env, stderr=subprocess.PIPE, text=True
    )
    assert again.stderr is not None
    said = again.stderr.readline()
    again.send_signal(signal.SIGINT)
    again.communicate()
    assert f"{46 - len(before)} runs, {len(before) - 1} done before" in said
    assert path.read_bytes().splitlines()[: len(before)] == before
    assert again.returncode in (130, -signal.SIGINT)
    assert not page.exists()


def _wait_for(condition: Callable[[], object], verb: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 300
    while not condition():
        assert verb.poll() is None, "the verb ended"
        assert time.monotonic() < until
        time.sleep(0.1)
