"""The form of an import path."""

from __future__ import annotations

import pytest

from migrator.core.registry import parts_of


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("module:Class", ("module", "Class")),
        ("package.module:Outer.Inner", ("package.module", "Outer.Inner")),
        ("module", None),
        ("module:", None),
        (":Class", None),
        ("my-module:Class", None),
        ("package..module:Class", None),
        ("module:Class:Other", None),
        ("../module:Class", None),
    ],
)
def test_only_names_with_dots_and_one_colon_are_one(
    path: str, parts: tuple[str, str] | None
) -> None:
    assert parts_of(path) == parts
