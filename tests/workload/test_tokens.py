"""Tokens of a live scenario: one each, from a file or the environment, never shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.live_scenarios import live_file

from migrator.core.errors import InputError
from migrator.workload.live import read_live
from migrator.workload.tokens import names_without_tenant, read_tokens

GOOD = {
    "admin": "the-administrators-token",
    "a": "the-token-of-a-itself",
    "b": "and-the-token-of-b",
}
NAMES = ("a", "b")


def from_file(folder: Path, content: str) -> dict[str, str] | None:
    (folder / "tokens.yaml").write_text(content, encoding="utf-8")
    live = read_live(live_file(folder, live={"tokens": "tokens.yaml"}))
    return read_tokens(live.live, NAMES, {})


def lines(tokens: dict[str, Any]) -> str:
    return "".join(f"{name}: {token}\n" for name, token in tokens.items())


def test_none_are_asked_for_unless_named(tmp_path: Path) -> None:
    assert read_tokens(read_live(live_file(tmp_path)).live, NAMES, {}) is None


def test_from_a_file(tmp_path: Path) -> None:
    assert from_file(tmp_path, lines(GOOD)) == GOOD


def test_other_names_may_have_one_of_which_a_warning_tells(tmp_path: Path) -> None:
    other = {**GOOD, "c": "a-token-of-c-itself"}
    (tmp_path / "tokens.yaml").write_text(lines(other))
    live = read_live(live_file(tmp_path, live={"tokens": "tokens.yaml"})).live
    assert read_tokens(live, NAMES, {}) == other
    warning = names_without_tenant(live, NAMES)
    assert warning == "live.tokens: c: no tenant here has this name"
    assert names_without_tenant(live, [*NAMES, "c", "removed"]) == ""
    variables = {name: f"TOKEN_{name.upper()}" for name in other}
    live = read_live(live_file(tmp_path, live={"token_variables": variables})).live
    environment = {variables[name]: token for name, token in other.items()}
    assert read_tokens(live, NAMES, environment) == other
    del environment["TOKEN_C"]
    assert read_tokens(live, NAMES, environment) == GOOD
    assert "live.token_variables: c" in names_without_tenant(live, NAMES)
    assert names_without_tenant(read_live(live_file(tmp_path)).live, NAMES) == ""


def test_from_the_environment(tmp_path: Path) -> None:
    variables = {name: f"TOKEN_{name.upper()}" for name in GOOD}
    live = read_live(live_file(tmp_path, live={"token_variables": variables})).live
    environment = {variables[name]: token for name, token in GOOD.items()}
    assert read_tokens(live, NAMES, environment) == GOOD
    del environment["TOKEN_B"]
    with pytest.raises(
        InputError, match=r"live\.token_variables\.b: the variable 'TOKEN_B' is not set"
    ):
        read_tokens(live, NAMES, environment)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"b": "null"}, "no list of tokens"),
        ({"b": 12345678901234567890}, "no list of tokens"),
        ({"b": "15-characters.."}, "too short"),
        ({"b": "\u00fcberlanges-kennwort"}, "characters that headers cannot carry"),
        ({"b": "a token with blanks"}, "blank"),
        ({"b": GOOD["a"]}, "a has the same token"),
        ({"c": "too-short"}, "too short"),
    ],
)
def test_refused_without_being_shown(changed: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        from_file(tmp_path, lines(GOOD | changed))
    assert said in str(error.value)
    assert not [
        token for token in (*GOOD.values(), *changed.values()) if str(token) in str(error.value)
    ]


def test_every_tenant_needs_a_token(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"tokens\.yaml: live\.tokens: admin and b without a token"
    ):
        from_file(tmp_path, lines({"a": GOOD["a"]}))
    with pytest.raises(InputError, match="no list of tokens"):
        from_file(tmp_path, "- one\n- two\n")
