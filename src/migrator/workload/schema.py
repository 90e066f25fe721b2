"""The scenario file's JSON schema, for editors and other programs."""

from __future__ import annotations

from typing import Any

from migrator.workload.entries import ScenarioEntry


def scenario_schema() -> dict[str, Any]:
    """The schema of version 1; what ties several keys together only reading can check."""
    schema = ScenarioEntry.model_json_schema(mode="validation")
    _tidy(schema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "MIGRator scenario",
    }


def _tidy(part: object) -> None:
    """Without the titles that pydantic makes up from the keys."""
    if isinstance(part, list):
        for each in part:
            _tidy(each)
    if not isinstance(part, dict):
        return
    if isinstance(part.get("title"), str):
        del part["title"]
    for each in part.values():
        _tidy(each)
