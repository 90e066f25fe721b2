"""The package index has another `migrator`: users install `migrator-gpu`, everywhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAME = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]
FOLDERS = ("src", "docs", "examples", "deploy", "benchmarks")
SUFFIXES = {".md", ".py", ".yaml", ".yml", ".toml", ".js", ".html", ".service", ".cff", ""}

EXTRAS_OF_ANOTHER = re.compile(r"(?<![\w.-])migrator\\?\[[a-z{]")
"""`migrator[serve]`, also as a regular expression or with the extra put in by Python."""

INSTALLS_ANOTHER = re.compile(
    r"\b(?:un)?install(?: +-\S+)* +['\"]?(?!migrator-gpu\b)(?:migrator(?![-\w/])|migrator[-_]\w+)"
)
METADATA_OF_ANOTHER = re.compile(r"\b(?:version|distribution|metadata)\(\s*['\"]migrator['\"]")


def misspelled(text: str) -> list[str]:
    """Where a text names a distribution of ours otherwise than NAME."""
    patterns = (EXTRAS_OF_ANOTHER, INSTALLS_ANOTHER, METADATA_OF_ANOTHER)
    return [match.group() for pattern in patterns for match in pattern.finditer(text)]


def texts() -> list[Path]:
    """What users read or run."""
    inside = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    at_top = [*ROOT.glob("*.md"), *ROOT.glob("*.cff"), ROOT / "pyproject.toml", ROOT / "Makefile"]
    return [path for path in (*at_top, *inside) if path.is_file() and path.suffix in SUFFIXES]


def test_every_text_names_the_distribution_by_its_name() -> None:
    assert NAME == "migrator-gpu"
    wrong = {
        str(path.relative_to(ROOT)): names
        for path in texts()
        if (names := misspelled(path.read_text(encoding="utf-8")))
    }
    assert wrong == {}


@pytest.mark.parametrize(
    "text",
    [
        "pip install 'migrator[serve]'",
        "pip install migrator",
        "pip install 'migrator-gpus[serve]'",
        "f'migrator[{extra}]'",
        'version("migrator")',
    ],
)
def test_another_spelling_is_found(text: str) -> None:
    assert misspelled(text)


@pytest.mark.parametrize(
    "text",
    [
        "pip install 'migrator-gpu[serve]'",
        "/opt/migrator/bin/pip install '.[serve]'",
        "migrator[-1] + results['migrator']",
    ],
)
def test_the_name_the_command_and_the_folders_are_not(text: str) -> None:
    assert not misspelled(text)
