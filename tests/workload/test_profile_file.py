"""Profile files: the packaged layout read back, and what is refused."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from migrator.core.errors import InputError
from migrator.core.profiles import profiles
from migrator.workload.file import parse_scenario
from migrator.workload.profile_file import parse_profile, read_profile


def packaged() -> list[dict[str, Any]]:
    text = files("migrator.core").joinpath("profiles.json").read_text(encoding="utf-8")
    entries: list[dict[str, Any]] = json.loads(text)["profiles"]
    return entries


def own() -> dict[str, Any]:
    return {**packaged()[1], "model": "my-net", "provenance": "measured here"}


def scenario(**tenant: object) -> dict[str, Any]:
    arrivals = {"generator": "poisson", "mean_rps": 10}
    return {"version": 1, "tenants": [{"slo_ms": 50, "arrivals": arrivals, **tenant}]}


@pytest.mark.parametrize("entry", packaged(), ids=lambda entry: str(entry["model"]))
def test_every_packaged_profile_is_a_profile_file(tmp_path: Path, entry: dict[str, Any]) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(entry), encoding="utf-8")
    assert read_profile(path) == profiles()[entry["model"], entry["board"]]


def test_a_tenant_may_have_a_profile_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(json.dumps(own()), encoding="utf-8")
    data = scenario(profile="mine.json")
    (tenant,) = parse_scenario(data, folder=tmp_path, name="x").tenants
    assert tenant.name == "my-net"
    assert tenant.service.profile.provenance == "measured here"
    with pytest.raises(InputError, match=r"tenants\[0\].model: .* of 'my-net', not of 'resnet-50'"):
        parse_scenario(scenario(profile="mine.json", model="resnet-50"), folder=tmp_path, name="x")
    elsewhere = {**data, "gpu": "A100-40GB"}
    (tenant,) = parse_scenario(elsewhere, folder=tmp_path, name="x").tenants
    assert tenant.service.profile.board == "A100-40GB"
    assert "approximation" in tenant.service.profile.provenance


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": 3}, "version: 3 is not supported"),
        ({"latency_ms": {}}, "latency_ms: an empty object"),
        ({"latency_ms": {"1": {"16": 0}}}, "latency_ms.1.16: 0 is not above 0"),
        ({"latency_ms": {"0": {"16": 1}}}, "latency_ms.0: '0' is not a batch"),
        ({"latency_ms": {"1": {"1g": 1}}}, "latency_ms.1.1g: '1g' is not a number of SMs"),
        ({"interference": -0.1}, "interference: -0.1 is less than 0"),
        ({"overhead": {"create_s": 1, "start_s": 1}}, "overhead.load_s: the key is missing"),
    ],
)
def test_refused_by_key(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_profile({**own(), **changes})
    assert str(caught.value).startswith(said)
    assert ";" in str(caught.value)
