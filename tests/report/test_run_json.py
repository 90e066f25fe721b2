"""A run as JSON."""

from __future__ import annotations

import json
from dataclasses import replace

from support.outcomes import run

from migrator.report.run_json import run_json

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
