"""`migrator status`, `windows` and `report` on records that the real writer wrote."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from support.gpu_cli import answered, migrator, refused
from support.html import ParsedPage
from support.live_records import Made, write_run

FIGURES = pytest.mark.skipif(not importlib.util.find_spec("plotly"), reason="needs plotly")


def asked(*arguments: object, code: int = 0) -> str:
    done = migrator(*arguments)
    assert done.code == code, done.err
    return done.out


def test_status_of_a_run_that_runs(records: Path) -> None:
    write_run(records)
    output = asked("status")
    assert output.startswith("quick, run 1: running as process ")
    assert "window 2, slot 11 of 20" in output
    (photos,) = [line for line in output.splitlines() if line.startswith("photos ")]
    # 50 seconds of 60 requests; 2 late in 15 of them; 1 dropped in each
    assert photos.split()[1:5] == ["3,000", "2,920", "30", "50"]
    assert photos.split()[-4:] == ["90.0%", "none", "2", "-"]
    assert "photos 3g" in output
    assert "idle 1g" in output
    assert "model: photos: version 2 is better" in output


def test_status_of_a_daemon_that_was_killed(records: Path, ended_pid: int) -> None:
    write_run(records, Made(pid=ended_pid))
    output = asked("status", code=1)
    assert "was killed or crashed" in output
    assert "the following is as last recorded" in output
    assert json.loads(asked("status", "--json", code=1))["life"] == "killed"


def test_status_as_json_has_all_of_it(records: Path) -> None:
    write_run(records)
    output = answered("status")
    assert (output["life"], output["answered"], output["window"]) == ("running", False, 2)
    assert [tenant["name"] for tenant in output["tenants"]] == ["cameras", "photos"]
    assert {unit["state"] for unit in output["units"]} == {"ready", "idle"}


def test_an_earlier_run_can_be_looked_at(records: Path) -> None:
    write_run(records, Made(policy="static-4-3", ends=True))
    write_run(records)
    assert "policy static-4-3" in asked("status", "--run", "1")
    assert "policy migrator" in asked("status")
    assert "there is no run 7; give one of 1, 2" in refused("status", "--run", "7")


def test_windows_promised_and_measured(records: Path) -> None:
    write_run(records)
    lines = asked("windows").splitlines()
    (photos,) = [line for line in lines if line.startswith("       photos") and "85.0%" in line]
    # 1,200 received; in time 1,167, of those 90% correct
    expected = "photos 1,200 1,050 117 10 23 4 70.0% 85.0% 90.0% none 2"
    assert photos.split() == expected.split()
    assert any(line.startswith("2*") for line in lines)
    assert max(map(len, lines)) <= 100
    assert "goodput 2,661 of 3,600 received (73.9%); 96.3% in time" in lines
    assert "plans predicted 3,001 in all, +12.8% to what was measured" in lines


def test_windows_as_json_count_what_has_not_ended_by_its_seconds(records: Path) -> None:
    write_run(records)
    output = answered("windows")
    assert [window["ended"] for window in output["windows"]] == [True, True, False]
    last = output["windows"][2]["tenants"]["cameras"]
    assert (last["received"], last["late"], last["goodput"]) == (300, 10, None)
    assert output["whole"]["received"] == 3600
    assert "plan" not in output["windows"][0]


def test_one_window_in_detail(records: Path) -> None:
    write_run(records)
    output = asked("windows", "1")
    assert "photos retrains in slots 2 to 11 on 2g" in output
    planned, held = output.split("held\n")
    assert "slice 5 |AABBBB" not in planned
    assert "slice 5 |AAbbbbbbbbbbAAAAAAAA|" in planned
    assert "slice 5 |AA-bbbbbbbbb+AAAAAAA|" in held
    assert "slice 0 |BBBBBBBBBBBBBBBBBBBB|" in held
    assert "slice 6 |--------------------|" in held
    assert "2g@4 for cameras: 0.90 s (create 0.40, load 0.05" in output
    assert "photos: version 2 adopted, 90.0%: 0.90 beats 0.70" in output
    assert "cameras: refused, 50.0%: 0.50 is below 0.60" in output
    assert max(map(len, output.splitlines())) <= 100
    whole = answered("windows", "1")
    assert whole["plan"]["solver"] == "exact"
    assert [version["number"] for version in whole["versions"]] == [0, 2]


@FIGURES
def test_the_report_is_one_page_that_needs_no_network(records: Path, tmp_path: Path) -> None:
    write_run(records, Made(ends=True))
    write_run(records, Made(policy="static-4-3", late=10))
    out = tmp_path / "live.html"
    assert asked("report", "--out", str(out), "--run", "1") == f"report  {out}\n"
    page = ParsedPage(out.read_text("utf-8"))
    assert "Goodput share by window" not in page.words
    output = answered("report", "--out", str(out), "--run", "1", "--beside", "2")
    page = ParsedPage(out.read_text("utf-8"))
    assert {address for address in page.addresses if not address.startswith("#")} == set()
    assert "Goodput share by window" in page.words
    assert output["beside"]["run"]["policy"] == "static-4-3"
    assert output["report"] == str(out)
