"""docs/troubleshooting.md explains every reason for which a tenant is not retrained."""

from __future__ import annotations

import re
from pathlib import Path

from migrator.core.not_retrained import Reason

DOCS = Path(__file__).parents[2] / "docs" / "troubleshooting.md"
SOURCES = Path(__file__).parents[2] / "src" / "migrator" / "control"


def test_every_reason_is_explained_in_the_words_of_the_program() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", DOCS.read_text("utf-8"), re.MULTILINE)
    assert [name for name, _ in rows] == list(Reason)
    source = "".join(
        (SOURCES / name).read_text("utf-8") for name in ("why_not_retrained.py", "controller.py")
    )
    source = re.sub(r'"\s*f?"', "", source)  # texts of several lines
    for _, cell in rows:
        for sentence in re.findall(r"`(.+?)`", cell):
            for part in re.split(r"[\d.,]+", sentence):  # between the numbers
                assert part.strip(" ()") in source, part
