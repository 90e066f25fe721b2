"""A load as table and JSON."""

from __future__ import annotations

import json

from support.load_outcomes import load_outcome

from migrator.report.load import load_json, load_table, versions_text
from migrator.report.terminal import COLUMNS


def test_the_table_has_a_line_for_every_window_and_tenant() -> None:
    text = load_table(load_outcome())
    lines = text.splitlines()
    assert lines[0] == "small at http://127.0.0.1:8600 (seed 0)"
    assert max(map(len, lines)) <= COLUMNS
    shown = [" ".join(line.split()) for line in lines]
    assert "3 busy 50 25 50.0% 70.0% 71.4% 0 5 5 5 26 47 49 1" in shown
    assert "quiet 1 0 0.0% 0.0% 0.0% 0 0 0 1 - - -" in shown
    assert "10 queue full" in lines
    assert "70 of 70 labels stored" in lines
    assert "ended early" not in text


def test_an_early_end_is_stated() -> None:
    text = load_table(load_outcome("the server answered nothing for 10 s"))
    assert "ended early: the server answered nothing for 10 s" in text


def test_versions() -> None:
    assert versions_text({}) == ""
    assert versions_text({"2": 5, "10": 1}) == "2,10"
    assert versions_text({str(number): 1 for number in range(1, 13)}) == "1..12"


def test_as_json_it_says_the_same() -> None:
    parsed_json = json.loads(json.dumps(load_json(load_outcome()), allow_nan=False))
    assert (parsed_json["sent"], parsed_json["goodput"], parsed_json["in_time"]) == (101, 50, 70)
    assert parsed_json["tenants"]["busy"]["slo_attainment"] == 0.7
    assert [window["window"] for window in parsed_json["windows"]] == [3, 4]
    assert parsed_json["windows"][1]["tenants"]["quiet"]["failed"] == {"connection refused": 1}
    assert parsed_json["tenants"]["quiet"]["latencies"] is None
    assert len(parsed_json["seconds"]["busy"]["sent"]) == 4
    assert parsed_json["ended"] is None
