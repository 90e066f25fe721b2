"""Strict reading: the sentences that no file format shows by itself."""

from __future__ import annotations

import pytest
from pydantic import Field

from migrator.core.catalogue import board
from migrator.core.errors import InputError
from migrator.io.strict import (
    Entry,
    by_size,
    key_path,
    listed,
    nearest,
    require_names,
    require_version,
    shown,
    validated,
)


class _Wheel(Entry):
    spokes: int = Field(gt=0, description="the number of spokes, a positive integer")


class _Bicycle(Entry):
    wheels: list[_Wheel] = Field(description="a list of wheels")
    bell: str = "ring"


def refusal(data: object, form: str = "JSON") -> str:
    with pytest.raises(InputError) as caught:
        validated(_Bicycle, data, "the bicycle", form)
    return str(caught.value)


def test_the_form_of_the_file_is_named() -> None:
    assert refusal([]) == "the bicycle is an empty list; give a JSON object with wheels and bell"
    assert "give a YAML object" in refusal(None, "YAML")


def test_a_bound_that_is_not_reached() -> None:
    assert refusal({"wheels": [{"spokes": 0}]}) == (
        "wheels[0].spokes: 0 is not above 0; give the number of spokes, a positive integer"
    )


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ((), "the top level"),
        (("a", 0, "b-c"), "a[0].b-c"),
        (("a", "b c"), "a['b c']"),
    ],
)
def test_key_path(location: tuple[int | str, ...], path: str) -> None:
    assert key_path(location) == path


def test_words() -> None:
    assert listed([1]) == "1"
    assert listed([1, 2, 7], last="and") == "1, 2 and 7"
    assert nearest("Wheel", ["wheels", "bell"]) == "wheels"
    assert nearest("zzz", ["wheels", "bell"]) is None
    assert shown({}) == "an empty object"
    assert len(shown("x" * 1000)) < 60


@pytest.mark.parametrize("version", [2, "1", 1.0, True, None])
def test_another_version(version: object) -> None:
    require_version({"version": 1}, 1)
    with pytest.raises(InputError, match="write the file in version 1"):
        require_version({"version": version}, 1)


@pytest.mark.parametrize(
    ("names", "said"),
    [(["a", ""], r"tenants\[1\].name"), (["a", "a"], r"tenants\[0\]"), (["\n"], "empty")],
)
def test_names_of_their_own(names: list[str], said: str) -> None:
    require_names(["a", "b"])
    with pytest.raises(InputError, match=said):
        require_names(names)


def test_sizes_of_the_board() -> None:
    gpu = board("H200-141GB")
    assert by_size({"7": 1.0, "1": 2.0}, ("seconds",), gpu) == {1: 2.0, 7: 1.0}
    with pytest.raises(InputError, match=r"seconds.5: .* use 1, 2, 3, 4 or 7 GPCs"):
        by_size({"5": 1.0}, ("seconds",), gpu)
