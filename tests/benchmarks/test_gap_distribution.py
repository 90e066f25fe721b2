"""The distribution of certified gaps on the evaluation's page."""


def test_gaps_are_told_per_charge() -> None:
    from benchmarks.evaluation import Json, gap_lines  # imports matplotlib

    runs: list[Json] = [
        {"charge": "survivors", "gaps": [0.0] * 88},
        {"charge": "survivors", "gaps": [0.02] * 10 + [0.03, 0.04]},
        {"charge": "paper", "gaps": [0.0, None]},
    ]
    *_, paper, survivors = gap_lines(runs)
    assert paper == "| paper | 2 | 0.000% | inf% | inf% | inf% | 50.0% |"
    assert survivors == "| survivors | 100 | 0.000% | 2.000% | 3.000% | 4.000% | 88.0% |"
