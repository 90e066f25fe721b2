"""From a JSON schema, as our OpenAPI description has them, to Hypothesis strategies and a check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

Schema = Mapping[str, Any]
Strategy = st.SearchStrategy[Any]

ANYTHING: Strategy = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats(width=32) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
KINDS: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}


def mostly(likely: Strategy, other: Strategy) -> Strategy:
    """The other one in ten times; `one_of` has no weights."""
    return st.integers(0, 9).flatmap(lambda drawn: other if drawn == 9 else likely)


class SchemaStrategies:
    """Values of the schemas; `hints`, as Title.property, say what is likely to get further."""

    def __init__(self, schemas: Mapping[str, Schema], hints: Mapping[str, Strategy]) -> None:
        self._schemas = schemas
        self._hints = hints

    def resolved(self, schema: Schema) -> Schema:
        """What a reference leads to."""
        reference = schema.get("$ref")
        return self._schemas[reference.rpartition("/")[2]] if reference else schema

    def values(self, schema: Schema, *, wrong: bool = False) -> Strategy:
        """Values that fit; with `wrong` any part of them may be anything."""
        fitting = self._fitting(self.resolved(schema), wrong)
        return mostly(fitting, ANYTHING) if wrong else fitting

    def _fitting(self, schema: Schema, wrong: bool) -> Strategy:
        kind = schema.get("type", "anything")
        if kind == "array":
            inner = self.values(schema.get("items", {}), wrong=wrong)
            least, most = schema.get("minItems", 0), schema.get("maxItems", 4)
            return st.lists(inner, min_size=least, max_size=min(4, most))
        if kind == "object":
            return self._objects(schema, wrong)
        low, high = schema.get("minimum", -(2**70)), schema.get("maximum", 2**70)
        plain: dict[str, Strategy] = {
            "string": st.text(max_size=schema.get("maxLength", 20)),
            "integer": st.integers(low, high),
            "number": st.floats() | st.integers(),
            "boolean": st.booleans(),
        }
        return plain.get(kind, ANYTHING)

    def _objects(self, schema: Schema, wrong: bool) -> Strategy:
        if "properties" not in schema:
            return st.dictionaries(st.text(), ANYTHING, max_size=3)
        title = schema.get("title", "")
        parts = {
            name: self._property(f"{title}.{name}", described, wrong)
            for name, described in schema["properties"].items()
        }
        hinted = {name for name in parts if f"{title}.{name}" in self._hints}
        needed = set() if wrong else hinted | set(schema.get("required", ()))
        return st.fixed_dictionaries(
            {name: part for name, part in parts.items() if name in needed},
            optional={name: part for name, part in parts.items() if name not in needed},
        )

    def _property(self, name: str, schema: Schema, wrong: bool) -> Strategy:
        drawn = self.values(schema, wrong=wrong)
        if name not in self._hints:
            return drawn
        return mostly(self._hints[name], drawn) if wrong else self._hints[name]

    def require_fitting(self, value: Any, schema: Schema) -> None:
        """That a value is as its schema says."""
        schema = self.resolved(schema)
        if "type" in schema:
            assert isinstance(value, KINDS[schema["type"]]), (value, schema)
        if isinstance(value, list):
            for item in value:
                self.require_fitting(item, schema.get("items", {}))
        elif isinstance(value, dict):
            assert set(schema.get("required", ())) <= set(value), (value, schema)
            properties = schema.get("properties", {})
            for name, item in value.items():
                self.require_fitting(item, properties.get(name, {}))
