"""The map's page of the docs."""

from benchmarks.map import Json, text

CELL: Json = {
    "load": 0.8,
    "gain": "packaged",
    "length": 2.0,
    "traces": "tweets",
    "tenants": 3,
    "workers": "cold",
    "runs": 5,
    "goodput": 0.5,
    "ceiling": 0.75,
    "leads": {
        **dict.fromkeys(["astraea", "paris", "paris-reconfiguring", "equal-mig"], None),
        "ekya": {"mean": 0.123, "half_width": 0.01},
        "best static split": {"mean": -0.05, "half_width": None},
    },
    "most": {"ekya": 0.5, "best static split": 0.25},
    "verdict": "a static split will do",
}


def test_a_row_tells_conditions_leads_and_the_ceiling() -> None:
    most = dict.fromkeys(CELL["leads"]) | CELL["most"]
    settings = {"quick": True, "runs": 5, "windows": 1, "generated": ["batch"]}
    settings |= {"policies": ["migrator-once"]}
    figures = {
        "settings": settings,
        "cells": [CELL | {"most": most}],
        "paper": {"ekya": 0.17},
        "nearest_to_paper": {"load": 0.8, "gain": "packaged"},
    }
    page = text(figures, "map-quick")
    assert "python -m benchmarks.map --quick" in page
    assert "1 cells of 5 runs of 1 x 200 s; generated traces: batch" in page
    row = page.splitlines()[-1]
    assert "| tweets, retraining x 2, 3 tenants, cold workers | a static split will do |" in row
    assert "| 50.0% | 75.0% | +12.3% ± 1.0 (+50.0%) | - |" in row
    assert row.endswith("| -5.0% (+25.0%) |")


def test_an_unfinished_map_says_so() -> None:
    most = dict.fromkeys(CELL["leads"]) | CELL["most"]
    settings = {"quick": False, "runs": 8, "windows": 2, "generated": [], "policies": ["migrator"]}
    figures = {
        "settings": settings,
        "cells": [CELL | {"most": most}],
        "paper": {},
        "nearest_to_paper": {"load": 0.8, "gain": "packaged"},
    }
    assert "1 cells of 5 runs of 2 x 200 s; real traces" in text(figures, "map")
    assert "**5 of 8 runs per cell**" in text(figures, "map")
