"""The JSON schema: it knows every key, and says what each one is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from migrator.workload.entries import PARTS
from migrator.workload.schema import scenario_schema


def objects(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        if isinstance(part.get("properties"), dict):
            yield part
        part = list(part.values())
    if isinstance(part, list):
        for each in part:
            yield from objects(each)


def test_it_is_json_and_names_the_version() -> None:
    schema = json.loads(json.dumps(scenario_schema()))
    assert schema["properties"]["version"]["const"] == 1
    assert schema["required"] == ["version", "tenants"]
    assert schema["title"] == "MIGRator scenario"


def test_every_key_of_every_object_is_described_and_no_other_allowed() -> None:
    found = list(objects(scenario_schema()))
    assert {frozenset(each["properties"]) for each in found} == {
        frozenset(model.model_fields) for model in PARTS.values()
    }
    for each in found:
        assert each["additionalProperties"] is False
        for key, value in each["properties"].items():
            assert value["description"], key
            assert "title" not in value, key


def test_arrivals_are_one_of_two() -> None:
    arrivals = scenario_schema()["$defs"]["ArrivalsEntry"]
    assert [each["required"] for each in arrivals["oneOf"]] == [
        ["trace"],
        ["generator", "mean_rps"],
    ]
