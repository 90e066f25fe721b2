"""A class name has one meaning in our sources, and loop variables say what they hold."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "migrator"


@cache
def parsed(code: str) -> ast.Module:
    return ast.parse(code)


def defined_twice(sources: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Class name -> the modules that define it, for names of several classes."""
    modules_of = defaultdict[str, list[str]](list)
    for module, code in sources:
        for node in ast.walk(parsed(code)):
            if isinstance(node, ast.ClassDef):
                modules_of[node.name.lstrip("_")].append(module)
    return {name: modules for name, modules in modules_of.items() if len(modules) > 1}


def test_every_class_name_has_one_meaning() -> None:
    paths = sorted(SOURCE.rglob("*.py"))
    sources = ((str(path.relative_to(SOURCE)), path.read_text(encoding="utf-8")) for path in paths)
    assert defined_twice(sources) == {}


def test_private_and_nested_classes_count() -> None:
    public = "class Row: ...\nclass Page: ...\n"
    other = "def made():\n    class _Row: ...\n"
    assert defined_twice([("a.py", public), ("b.py", other)]) == {"Row": ["a.py", "b.py"]}


def test_no_loop_variable_is_called_each() -> None:
    """`for tenant in tenants`: the name says what is iterated over."""
    root = SOURCE.parent.parent
    for folder in ("src", "benchmarks", "examples"):
        for path in sorted((root / folder).rglob("*.py")):
            for node in ast.walk(parsed(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    assert node.id != "each", f"{path.relative_to(root)}:{node.lineno}"
