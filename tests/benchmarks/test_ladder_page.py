"""The page of the ladder's figures."""

import ladder


def test_a_row_per_step_and_the_default_marked() -> None:
    figures = {
        "default": "all",
        "workloads": ["W1"],
        "goodput": {"none": {"migrator": 0.5, "ekya": 0.4}, "all": {"migrator": 0.5, "ekya": 0.25}},
        "gains": {"none": {"ekya": 0.25}, "all": {"ekya": 1.0}},
    }
    found = {"traces": "real", "seeds": [0], "experiments": {"ladder": figures}}
    rows = ladder.text(found).splitlines()[4:]
    assert rows[0] == "| limits | migrator | ekya |"
    assert rows[2:] == [
        "| none | 50.0% | 40.0% (+25.0%) |",
        "| **all (default)** | 50.0% | 25.0% (+100.0%) |",
    ]
