"""Every `migrator` command in the README, the docs and the examples has verbs and options that
there are, and every script named there is one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from migrator.cli import app

ROOT = Path(__file__).parent.parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.yaml")),
    *sorted((ROOT / "deploy").rglob("*.y*ml")),
    *sorted((ROOT / "src" / "migrator" / "workload").glob("*.yaml")),
    *sorted((ROOT / "src" / "migrator" / "workload").glob("*.txt")),
]


def _commands(page: Path) -> Iterator[list[str]]:
    """Lines of code blocks and comments that begin with `migrator`, without their comments."""
    text = page.read_text(encoding="utf-8")
    lines = text.splitlines()
    if page.suffix == ".md":
        blocks = re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
        lines = [line for block in blocks for line in block.splitlines()]
    for line in lines:
        match = re.match(r"(?:#\s*)?\s*(migrator .*)", line)
        if match is None or match[1].startswith("migrator is"):
            continue
        for part in re.split(r"\s(?:&&|\||>|>>)\s", match[1]):
            arguments = shlex.split(part, comments=True)
            if arguments[:1] == ["migrator"] and not set(part) & set("<[…"):
                yield arguments[1:]


VERBS = get_command(app)
CASES = [(page, command) for page in PAGES for command in _commands(page)]


def test_the_readme_states_the_gaps_as_their_page_does() -> None:
    page = (ROOT / "docs" / "results" / "survivors_gap.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| 2 \| (.*) \|$", page, re.MULTILINE)
    windows, _, _, _, most, _, _ = row.split(" | ")
    said = f"at most 1% below the bound in {most} of {windows} windows"
    assert said in (ROOT / "README.md").read_text(encoding="utf-8")


def test_documented_scripts_exist_and_run_as_modules() -> None:
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    pattern = r"-m (benchmarks[.a-z_0-9]*[a-z_0-9])"
    named = {name for text in texts for name in re.findall(pattern, text)}
    assert [name for name in sorted(named) if find_spec(name) is None] == []
    assert not [text for text in texts if "python benchmarks/" in text]


def test_there_are_such_commands() -> None:
    assert len(CASES) > 80


@pytest.mark.parametrize("page", sorted({page for page, _ in CASES}), ids=lambda path: path.name)
def test_the_commands_of_a_page_can_be_parsed(page: Path) -> None:
    wrong = []
    for command in (command for own, command in CASES if own == page):
        try:
            _parse(VERBS, command)
        except Exception as error:  # typer has a click of its own
            wrong.append(f"migrator {' '.join(command)}: {error}")
    assert not wrong, "\n".join(wrong)


def _parse(command: Any, arguments: list[str]) -> None:
    """Find the verb and parse its options and arguments; nothing runs."""
    name = "migrator"
    while hasattr(command, "commands"):
        context = command.make_context("migrator", list(arguments), resilient_parsing=True)
        arguments = [*context._protected_args, *context.args]
        if not arguments:
            return
        name, command, arguments = command.resolve_command(context, arguments)
    command.make_context(name, list(arguments))
