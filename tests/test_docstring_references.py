"""Docstrings, comments and docs name only files and modules of ours that exist."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CODE = ("src", "tests", "benchmarks", "examples")
TEXTS = ("README.md", "CONTRIBUTING.md", "docs/**/*.md")
PATH = re.compile(r"(?<![\w/.:~-])((?:[\w-]+/)+[\w-]+\.py)\b|`([\w-]+\.py)`")
MODULE = re.compile(r"(?<![\w/.-])(migrator(?:\.[A-Za-z_]\w*)+)(?![\w/-])")
SUFFIXES = {"__file__", "json", "yaml", "html", "service", "db", "git", "example", "tar"}
"""What follows `migrator.` in names of files and of the module itself."""


@cache
def _files() -> frozenset[str]:
    """Every Python file of the tree, and every end of its path."""
    paths = [p.relative_to(ROOT) for folder in CODE for p in (ROOT / folder).rglob("*.py")]
    paths += [p.relative_to(ROOT) for p in ROOT.glob("*.py")]
    ends = ("/".join(p.parts[first:]) for p in paths for first in range(len(p.parts)))
    return frozenset(ends)


def _texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring and comment of a Python file."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text)), lineno=line):
                yield line, text
    for number, text in enumerate(source.splitlines(), 1):
        _, is_comment, comment = text.partition("# ")
        if is_comment:
            yield number, comment


def _missing_files(text: str) -> set[str]:
    named = {first or second for first, second in PATH.findall(text)}
    return {name for name in named if name not in _files()}


def _missing_modules(text: str) -> set[str]:
    return {name for name in MODULE.findall(text) if not _is_there(name)}


@cache
def _is_there(name: str) -> bool:
    """Whether it is a module of ours, or a name that one defines or imports."""
    parts = name.split(".")
    if parts[-1] in SUFFIXES:
        return True
    for length in range(len(parts), 0, -1):
        place = ROOT.joinpath("src", *parts[:length])
        source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        if source.exists():
            rest, text = parts[length:], source.read_text(encoding="utf-8")
            is_member = len(rest) == 1 or (len(rest) == 2 and rest[0][0].isupper())
            named = rest and is_member and re.search(rf"\b{rest[0]}\b", text)
            return not rest or bool(named)
    return False


def _missing(text: str) -> set[str]:
    return _missing_files(text) | _missing_modules(text)


@pytest.mark.parametrize("folder", CODE)
def test_docstrings_and_comments_name_what_exists(folder: str) -> None:
    missing = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path != Path(__file__)
        for line, text in _texts_of(path)
        for name in sorted(_missing(text))
    ]
    assert not missing, "\n".join(missing)


def test_docs_name_what_exists() -> None:
    missing = [
        f"{path.relative_to(ROOT)}:{number}: {name}"
        for pattern in TEXTS
        for path in sorted(ROOT.glob(pattern))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for name in sorted(_missing(line))
    ]
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("See router/queue.py.", "router/queue.py"),
        ("as `nowhere_to_be_found.py` does", "nowhere_to_be_found.py"),
        ("`migrator.plan.solve` solves it", "migrator.plan.solve"),
        ("migrator.planning.solve.unknown gives it", "migrator.planning.solve.unknown"),
    ],
)
def test_what_does_not_exist_is_found(text: str, name: str) -> None:
    assert _missing(text) == {name}


@pytest.mark.parametrize(
    "text",
    [
        "`planning/check.py` and planning/exact/prices.py",
        "`migrator.planning.solve.make_plan`",
        "see https://github.com/python/cpython/blob/main/Lib/gc.py",
    ],
)
def test_what_exists_is_not_found(text: str) -> None:
    assert not _missing(text)
