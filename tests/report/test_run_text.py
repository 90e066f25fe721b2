"""Runs as text: aligned, complete, and never wider than a terminal; and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.outcomes import auto, run, tally

from migrator.core.comparison import Row, summarise
from migrator.core.outcome import Tally
from migrator.records.outcome import RunOutcome
from migrator.report.comparison import comparison_table
from migrator.report.run_json import run_json
from migrator.report.run_text import run_table
from migrator.report.terminal import COLUMNS, count, relation


def compared(**late: int) -> tuple[Row, ...]:
    return summarise(
        run(policy, seed=seed, late=late_requests + seed)
        for policy, late_requests in late.items()
        for seed in (0, 1)
    )


def test_a_run_has_a_line_per_window_and_tenant_and_in_all() -> None:
    outcome = run(windows=2)
    lines = [line.split() for line in run_table(outcome).splitlines()]
    names = [line[0] for line in lines[2:] if len(line) in (11, 12) and line[-1].isdigit()]
    assert names == ["0", "vit", "all", "1", "vit", "all", "all", "vit", "all"]
    total = outcome.tally
    last = [line for line in lines if line[:1] == ["all"]][-1]
    assert last[1:] == [
        count(total.received),
        count(total.goodput),
        f"{total.goodput_share:.1%}",
        f"{total.slo_attainment:.1%}",
        f"{total.accuracy:.1%}",
        count(total.wrong),
        "200",
        "100",
        "48",
        "6",
    ]


def test_the_words_below_say_planning_promises_and_waiting() -> None:
    text = run_table(run())
    assert "planning took 0.5 s over 2 windows" in text
    assert "(+5.0% to measured)" in text
    assert "in the fluid model" in text
    assert run().fairness.words in text
    plain = run_table(run("ekya", mps=True))
    assert "predicted" not in plain
    assert "waited" not in plain


@settings(deadline=None, max_examples=10)
@given(
    name=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=200),
    received=st.integers(1, 10**12),
)
def test_a_run_is_never_wider_than_a_terminal(name: str, received: int) -> None:
    outcome = big(name, tally(received, late=received // 4, dropped=received // 4))
    assert max(map(len, run_table(outcome).splitlines())) <= COLUMNS


def big(name: str, counted: Tally) -> RunOutcome:
    made = run(windows=1, tenants=(name,))
    tenant = replace(made.windows[0].tenants[0], tally=counted, reconfigurations=10**6)
    return replace(made, windows=(replace(made.windows[0], tenants=(tenant,)),))


def test_policies_are_sorted_by_goodput_with_gains() -> None:
    lines = comparison_table(compared(ekya=80, migrator=40, oracle=10)).splitlines()
    assert lines[0] == "quick (2 seeds)"
    assert [line.split()[0] for line in lines[3:6]] == ["oracle", "migrator", "ekya"]
    migrator, ekya = lines[4].split(), lines[5].split()
    assert migrator[-1] == "-"
    assert migrator[-2].startswith("+")
    assert ekya[-1] == ekya[-2]
    assert ekya[-1].startswith("-")
    assert "±" not in lines[4]
    assert "±" in lines[3]
    assert "±" in lines[5]


def test_without_migrator_policies_are_compared_with_the_first_one() -> None:
    lines = comparison_table(compared(paris=80, ekya=40)).splitlines()
    assert lines[1].endswith("vs paris")
    assert "difference from paris with" in "\n".join(lines)
    ekya, paris = lines[3:5]
    assert "±" in ekya
    assert ekya.split()[-1].startswith("+")
    assert paris.split()[-1] == "-"


@settings(deadline=None, max_examples=10)
@given(
    policy=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=200),
    late=st.integers(0, 120),
)
def test_a_comparison_is_never_wider_than_a_terminal(policy: str, late: int) -> None:
    text = comparison_table(compared(**{policy: late, "paris": 50}))
    assert max(map(len, text.splitlines())) <= COLUMNS


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (999_999.4, "999,999"),
        (999_999.6, "1.00M"),
        (12_345_678, "12.35M"),
        (2e9, "2.0e+09"),
    ],
)
def test_counts_are_short(value: float, text: str) -> None:
    assert count(value) == text


def test_the_forecaster_chosen_in_the_last_window_is_named() -> None:
    text = run_table(auto(run(windows=2)))
    assert "\nbert forecast in the last window by ridge: less loss for bert in 1\n" in text
    assert "in 0" not in text
    assert "\nvit forecast by ridge: less loss for vit in 0" in run_table(auto(run(windows=1)))
    plain = run(windows=1)
    window = plain.windows[0]
    named = tuple(replace(tenant, forecast_by=plain.forecaster) for tenant in window.tenants)
    same = replace(plain, windows=(replace(window, tenants=named),))
    assert run_table(same) == run_table(plain)
    assert "forecast by" not in run_table(plain)


def test_a_prediction_far_off_is_a_multiple() -> None:
    assert relation(112.8, 100, "measured") == "+12.8% to measured"
    assert relation(1000, 100, "measured") == "+900.0% to measured"
    assert relation(182_578.5, 100, "measured") == "1,826 times measured"


COUNTED = {
    *("received", "goodput", "goodput_share", "slo_attainment", "accuracy", "late", "wrong"),
    *("dropped", "queued", "while_reconfiguring", "reconfigurations"),
}


def test_the_same_figures_in_all_per_window_and_per_tenant() -> None:
    outcome = run(windows=2)
    parsed_json = json.loads(json.dumps(run_json(outcome), allow_nan=False))
    planned = {"plan_s", "predicted", "fluid", "tenants"}
    assert set(parsed_json) == COUNTED | planned | {
        *("policy", "scenario", "forecaster", "seed", "labels", "windows", "fairness"),
    }
    shares = {tenant["tenant"]: tenant["goodput_share"] for tenant in parsed_json["tenants"]}
    even = parsed_json["fairness"]
    assert even["worst_share"] == shares[even["worst_tenant"]] == min(shares.values())
    assert 0.5 <= even["jain_index"] <= 1
    assert [set(window) for window in parsed_json["windows"]] == [
        COUNTED | planned | {"window", "plans"}
    ] * 2
    assert [set(tenant) for tenant in parsed_json["tenants"]] == [
        COUNTED | {"tenant", "plan_s"}
    ] * 2
    for window in parsed_json["windows"]:
        assert [tenant["tenant"] for tenant in window["tenants"]] == ["bert", "vit"]
        assert all(set(tenant) > COUNTED for tenant in window["tenants"])


def test_what_is_no_number_is_null() -> None:
    outcome = run(windows=1)
    odd = replace(outcome.windows[0], plan_s=float("nan"), predicted=float("inf"), fluid=None)
    run_as_json = run_json(replace(outcome, windows=(odd,)))
    assert run_as_json["plan_s"] is run_as_json["predicted"] is run_as_json["fluid"] is None
    json.dumps(run_as_json, allow_nan=False)
