"""Commands in the docs name scripts that there are."""

import re
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMED = {
    name
    for page in PAGES
    for name in re.findall(r"-m (benchmarks[.a-z_0-9]*[a-z_0-9])", page.read_text(encoding="utf-8"))
}


def test_documented_scripts_exist_and_run_as_modules() -> None:
    assert [name for name in sorted(NAMED) if find_spec(name) is None] == []
    pages = [page for page in PAGES if "python benchmarks/" in page.read_text(encoding="utf-8")]
    assert pages == []
