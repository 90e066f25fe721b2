"""Scenario files in which a tenant has several ways to retrain."""

import copy
from pathlib import Path
from typing import Any

import pytest

from migrator.core.errors import InputError
from migrator.core.scenario import Scenario
from migrator.workload.file import parse_scenario

FIRST = {"accuracy_pre": 0.6, "accuracy_post": 0.9, "seconds": {"1": 60, "4": 20}}
NOTHING = {"accuracy_pre": 0.5, "accuracy_post": 0.5}
HALF: dict[str, Any] = {
    "name": "half",
    "memory_gib": 20,
    "windows": [
        {"accuracy_post": 0.8, "seconds": {"1": 30, "4": 10}, "accuracy_estimated": 0.7},
        {"accuracy_post": 0.5},
    ],
}
SCENARIO: dict[str, Any] = {
    "version": 1,
    "gpu": "H200-141GB",
    "tenants": [
        {
            "model": "resnet-50",
            "slo_ms": 100,
            "arrivals": {"generator": "azure", "mean_rps": 100},
            "retraining": {
                "windows": [FIRST, NOTHING],
                "configurations": [{"name": "all"}, HALF],
            },
        }
    ],
}
AT = ("tenants", 0, "retraining")


def changed(*keys_and_value: Any) -> dict[str, Any]:
    """The scenario with one value of it replaced or added."""
    data = copy.deepcopy(SCENARIO)
    *path, last, value = keys_and_value
    parent: Any = data
    for key in path:
        parent = parent[key]
    parent[last] = value
    return data


def parsed(data: dict[str, Any]) -> Scenario:
    return parse_scenario(data, folder=Path(), name="two")


def test_a_window_has_the_other_configurations_beside_the_first() -> None:
    first, nothing = parsed(SCENARIO).tenants[0].drifts
    assert (first.configuration, first.accuracy_post) == ("all", 0.9)
    (half,) = first.others
    assert (half.name, half.accuracy_post, half.accuracy_expected) == ("half", 0.8, 0.7)
    assert half.memory_gib == 20
    assert half.seconds.at(16) == pytest.approx(30)
    assert (first.accuracy_after("all"), first.accuracy_after("half")) == (0.9, 0.8)
    assert nothing.others == ()


@pytest.mark.parametrize(
    ("keys", "value", "sentence"),
    [
        (
            ("configurations", 0, "windows"),
            HALF["windows"],
            "configurations[0].windows: the first configuration is the one that dataset or windows "
            "describes; leave it out",
        ),
        (
            ("configurations", 1),
            {"name": "half"},
            "configurations[1].windows: the key is missing; give 2, as many as the first "
            "configuration has",
        ),
        (
            ("configurations", 1, "windows", 0, "seconds"),
            None,
            "configurations[1].windows[0].seconds: the key is missing; give seconds in the "
            "windows in which the first configuration has some",
        ),
        (
            ("configurations", 1, "windows", 1, "seconds"),
            {"1": 3},
            "configurations[1].windows[1].seconds: there is nothing to retrain; give seconds in "
            "the windows in which the first configuration has some",
        ),
        (
            ("configurations", 1, "name"),
            "all",
            "configurations[1].name: 'all' is already the name of "
            "tenants[0].retraining.configurations[0]; give every configuration a name of its own",
        ),
    ],
)
def test_refused_by_key_with_a_remedy(keys: tuple[Any, ...], value: Any, sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        parsed(changed(*AT, *keys, value))
    assert str(refused.value) == f"tenants[0].retraining.{sentence}"


def test_labels_that_come_during_a_window_are_learned_a_window_later() -> None:
    data = changed("labels", "feedback")
    _, second = parsed(data).tenants[0].drifts
    kept = 0.5 / 0.9
    assert second.configuration == "all"
    (half,) = second.others
    assert half.accuracy_post == pytest.approx(0.8 * kept)
    assert half.accuracy_expected == pytest.approx(0.7 * kept)
