"""Commands in the docs name scripts that there are."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMED = {
    name
    for page in PAGES
    for name in re.findall(r"-m (benchmarks[.a-z_0-9]*[a-z_0-9])", page.read_text(encoding="utf-8"))
}


@pytest.mark.parametrize("name", sorted(NAMED))
def test_a_documented_script_exists(name: str) -> None:
    assert find_spec(name) is not None


def test_documented_scripts_run_as_modules() -> None:
    pages = [page for page in PAGES if "python benchmarks/" in page.read_text(encoding="utf-8")]
    assert pages == []
