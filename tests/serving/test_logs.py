"""Log lines: JSON that machines read, text without control characters, floods in a few lines."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from datetime import datetime

import pytest

from migrator.serving.logs import LineLimiter, OurHandler, configure

LOGGER = logging.getLogger("migrator.tests")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """What is logged; the process's own handlers are as before afterwards."""
    ours, root = logging.getLogger("migrator"), logging.getLogger()
    level = ours.level
    yield io.StringIO()
    ours.setLevel(level)
    for handler in [handler for handler in root.handlers if isinstance(handler, OurHandler)]:
        root.removeHandler(handler)


def test_a_json_line_has_its_fields(stream: io.StringIO) -> None:
    configure("json", "info", stream)
    LOGGER.info("plan for %d slots", 9, extra={"window": 3, "gap": float("inf"), "tenant": "ä"})
    LOGGER.debug("too little")
    line = json.loads(stream.getvalue(), parse_constant=pytest.fail)
    assert datetime.fromisoformat(line.pop("time")).utcoffset() is not None
    assert line == {
        "level": "info",
        "logger": "migrator.tests",
        "message": "plan for 9 slots",
        "window": 3,
        "gap": "inf",
        "tenant": "ä",
    }


def test_a_client_cannot_begin_a_line_of_its_own(stream: io.StringIO) -> None:
    configure("text", "info", stream)
    LOGGER.warning("request %s refused", "x\n2026-01-01 ERROR all is lost\r\x1b[31m\x9b2J\u2028")
    (line,) = stream.getvalue().splitlines()
    assert "WARNING" in line
    assert r"x\x0a2026-01-01 ERROR" in line
    assert line.isprintable()


def test_a_flood_is_logged_in_a_few_lines_and_omitted_lines_are_counted(
    stream: io.StringIO,
) -> None:
    configure("text", "info", stream)
    now_s = [0.0]
    limiter = LineLimiter(most=3, each_s=1.0, clock=lambda: now_s[0])

    def logged(kind: str, times: int) -> list[str]:
        before = len(stream.getvalue())
        for _ in range(times):
            limiter.log(LOGGER, logging.INFO, kind, kind)
        return [line.partition("INFO    ")[2] for line in stream.getvalue()[before:].splitlines()]

    assert logged("late", 10) == ["late"] * 3
    assert logged("other", 1) == ["other"]
    now_s[0] = 0.9
    assert logged("late", 1) == []
    now_s[0] = 1.0
    assert logged("late", 4) == ["late (and 8 more like it before)", "late", "late"]
