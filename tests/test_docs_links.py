"""Relative links between the pages lead to files that exist, and anchors to headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`[^`]*`")


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    anchors: set[str] = set()
    for heading in re.findall(r"^#+ +(.*)$", prose(page), re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-")
        number = 0
        while (name := f"{anchor}-{number}" if number else anchor) in anchors:
            number += 1
        anchors.add(name)
    return anchors


def broken(page: Path) -> Iterator[str]:
    """Links of a page that lead nowhere."""
    for link in LINK.findall(CODE.sub("", prose(page))):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert list(broken(page)) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One `two`, three\n[a](#one-two-three) [b](#four) [c](missing.md)\n", "utf-8")
    assert list(broken(page)) == ["#four", "missing.md"]


def test_every_page_is_linked_from_the_readme() -> None:
    linked = set(LINK.findall(prose(ROOT / "README.md")))
    pages = {str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md")}
    assert pages - linked == set()
