"""The live keys of a scenario: defaults, meaning, refusals; and the example that has them all."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from migrator.core.errors import InputError
from migrator.workload.file import read_scenario
from migrator.workload.live import LiveScenario, parse_live, read_live

EXAMPLE = Path(__file__).parents[2] / "examples" / "live.yaml"


def smallest() -> dict[str, Any]:
    return {
        "version": 1,
        "tenants": [
            {
                "name": "photos",
                "model": "resnet-50",
                "slo_ms": 100,
                "arrivals": {"generator": "poisson", "mean_rps": 50},
                "retraining": {"dataset": "nc-cifar-10"},
            }
        ],
    }


def parsed(data: object, folder: Path = Path()) -> LiveScenario:
    return parse_live(data, folder=folder, name="test")


def refusal(data: object, folder: Path = Path()) -> str:
    with pytest.raises(InputError) as error:
        parsed(data, folder)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_scenario_without_live_keys_is_served_with_defaults() -> None:
    scenario = parsed(smallest())
    assert (scenario.live.host, scenario.live.port) == ("127.0.0.1", 8600)
    assert (scenario.live.token_file, scenario.live.token_variables) == (None, None)
    tenant = scenario.tenant("photos")
    assert (tenant.name, tenant.model, tenant.benchmark) == ("photos", "resnet-50", "nc-cifar-10")
    assert (tenant.classes, tenant.pixels, tenant.weights) == (None, None, None)
    assert (tenant.epochs, tenant.replay, tenant.held_out, tenant.seed) == (8, 200, 0.2, 0)


def test_every_key_means_what_the_format_says(tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").touch()
    data = smallest()
    data["live"] = {
        "host": "::1",
        "port": 0,
        "tokens": "t.yaml",
        "max_body_mib": 2,
        "queue_limit": 9,
    }
    data["live"]["connections"] = 7
    own = {
        "classes": 12,
        "pixels": 64,
        "input_pixels": 32,
        "weights": "w.safetensors",
        "benchmark": "nc-synthetic",
    }
    data["tenants"][0]["live"] = own | {"seed": 5, "epochs": 3, "replay": 10, "held_out": 0.5}
    scenario = parsed(data, tmp_path)
    assert (scenario.live.host, scenario.live.port, scenario.live.max_body_mib) == ("::1", 0, 2)
    assert (scenario.live.queue_limit, scenario.live.connections) == (9, 7)
    assert scenario.live.token_file == tmp_path / "t.yaml"
    tenant = scenario.tenants[0]
    assert (tenant.classes, tenant.pixels, tenant.benchmark) == (12, 64, "nc-synthetic")
    assert tenant.input_pixels == 32
    assert tenant.weights == tmp_path / "w.safetensors"
    assert (tenant.seed, tenant.epochs, tenant.replay, tenant.held_out) == (5, 3, 10, 0.5)


WAYS: list[dict[str, Any]] = [
    {"name": "all"},
    {"name": "half", "epochs": 4, "part": 0.5},
    {"name": "head", "layers": "head"},
]


def test_a_tenant_has_several_ways_to_retrain() -> None:
    data = smallest()
    data["tenants"][0]["retraining"]["configurations"] = WAYS
    scenario = parsed(data)
    tenant = scenario.tenants[0]
    assert [(way.name, way.epochs, way.part, way.layers) for way in tenant.configurations] == [
        ("all", 8, 1.0, "all"),
        ("half", 4, 0.5, "all"),
        ("head", 8, 1.0, "head"),
    ]
    # simulations have the first one, which the data set describes
    assert [drift.others for drift in scenario.scenario.tenants[0].drifts] == [()] * 4


def test_ways_to_retrain_need_no_data_set() -> None:
    data = smallest()
    data["tenants"][0]["retraining"] = {"configurations": WAYS}
    data["tenants"][0]["live"] = {"benchmark": "nc-synthetic"}
    scenario = parsed(data)
    assert len(scenario.tenants[0].configurations) == 3
    assert scenario.scenario.tenants[0].drifts == ()


@pytest.mark.parametrize(
    ("at", "key", "value", "sentence"),
    [
        (1, "layers", "last", "configurations[1].layers: 'last' is not known"),
        (1, "name", "head", "configurations[2].name: 'head' is already the name of"),
        (
            2,
            "layers",
            "all",
            "configurations[2]: 'head' is carried out as 'all' is; give it other epochs, another "
            "part or other layers",
        ),
        (
            1,
            "windows",
            [{"accuracy_post": 0.5, "seconds": {"1": 3}}],
            "configurations[1].windows: 1 windows are given; give 4",
        ),
    ],
)
def test_wrong_configurations_are_refused_by_key(
    at: int, key: str, value: object, sentence: str
) -> None:
    data = smallest()
    ways = copy.deepcopy(WAYS)
    ways[at][key] = value
    data["tenants"][0]["retraining"]["configurations"] = ways
    assert f"tenants[0].retraining.{sentence}" in refusal(data)


def test_windows_without_a_first_configuration_that_is_described_are_refused() -> None:
    data = smallest()
    ways = [{"name": "all", "windows": [{"accuracy_post": 0.5}]}]
    data["tenants"][0]["retraining"] = {"configurations": ways}
    assert "give dataset or windows beside configurations" in refusal(data)


@pytest.mark.parametrize(
    ("keys", "value", "said"),
    [
        (("live", "prot"), 1, "did you mean port?"),
        (("live", "tokens"), "a\nb", "live.tokens: 'a\\nb' is no path"),
        (("tenants", 0, "live", "retrain_after_labels"), 19, "19 is less than 20"),
        (("tenants", 0, "live", "weights"), "w.pt", "no .safetensors file"),
        (("tenants", 0, "live", "weights"), "absent.safetensors", "there is no file"),
        (("tenants", 0, "name"), "../photos", "cannot be part of an address"),
        (("tenants", 0, "name"), "admin", "use another name"),
        (("tenants", 0, "retraining"), None, "give classes, or a benchmark"),
    ],
)
def test_refused_by_key_with_a_remedy(
    keys: tuple[str | int, ...], value: object, said: str
) -> None:
    data: Any = smallest() | {"live": {}}
    data["tenants"][0]["live"] = {}
    part = data
    for key in keys[:-1]:
        part = part[key]
    part[keys[-1]] = value
    assert said in refusal(data)


def test_the_example_is_a_live_scenario_that_a_small_machine_can_serve() -> None:
    scenario = read_live(EXAMPLE)
    assert scenario.scenario.board.name == "A100-40GB"
    assert [tenant.benchmark for tenant in scenario.tenants] == ["nc-synthetic"] * 2
    assert len({tenant.seed for tenant in scenario.tenants}) == 2
    for tenant, served in zip(scenario.tenants, read_scenario(EXAMPLE).tenants, strict=True):
        run = slice(served.offset_s, served.offset_s + 60)
        assert served.trace.counts[run].mean() < 100
        # what the simulator assumes of retrainings is what the profile says of about 750 samples
        seconds = served.drifts[1].seconds
        assert seconds is not None
        for sms, value in seconds.points:
            assert tenant.training_s(750).at(sms) == pytest.approx(value, rel=0.05)
