"""Log lines of the daemon and of its workers: text for people, or JSON for machines, one a line.

What belongs to a line beside its words (tenant, window, request_id...) is given to the logger as
`extra`; JSON shows all of it, text only the words, which say the same.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")
FORMAT_VARIABLE = "MIGRATOR_LOG_FORMAT"
"""How the processes of the daemon learn in which form they write."""

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_CONTROLS = {each: f"\\x{each:02x}" for each in (*range(32), *range(127, 160), 0x2028, 0x2029)}
"""What a client sends must not be able to begin a line of its own, nor command a terminal."""


class OurHandler(logging.StreamHandler[IO[str]]):
    """The handler that `configure` put there, so that it can be replaced."""


class JsonLines(logging.Formatter):
    """time, level, logger, message, then what was given with it."""

    def format(self, record: logging.LogRecord) -> str:
        """One object."""
        line: dict[str, object] = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {key: _finite(each) for key, each in vars(record).items() if _told(key)}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class TextLines(logging.Formatter):
    """Time, level and words; an exception follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        words = record.getMessage().translate(_CONTROLS)
        line = f"{_moment(record)} {record.levelname:<7} {words}"
        if record.exc_info:
            line += f"\n{self.formatException(record.exc_info)}"
        return line


def configure(form: str = "text", level: str = "info", stream: IO[str] | None = None) -> None:
    """From now on all log lines of this process go to `stream`, by default stderr."""
    handler = OurHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    root = logging.getLogger()
    for each in [each for each in root.handlers if isinstance(each, OurHandler)]:
        root.removeHandler(each)
    root.addHandler(handler)
    logging.getLogger("migrator").setLevel(level.upper())


@dataclass(slots=True)
class _Kind:
    since_s: float
    lines: int = 0
    left_out: int = 0


class Sparing:
    """A few lines a second of each kind, so that a flood of requests is none of log lines."""

    def __init__(
        self, most: int = 5, each_s: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most, self._each_s, self._clock = most, each_s, clock
        self._kinds: dict[Hashable, _Kind] = {}

    def admit(self, kind: Hashable) -> int | None:
        """How many were left out since the last line of its kind; None: leave this one out too.

        Kinds are remembered for good: there must be few.
        """
        now_s = self._clock()
        known = self._kinds.setdefault(kind, _Kind(now_s))
        if now_s - known.since_s >= self._each_s:
            known.since_s, known.lines = now_s, 0
        if known.lines >= self._most:
            known.left_out += 1
            return None
        left_out, known.left_out = known.left_out, 0
        known.lines += 1
        return left_out


def and_more(left_out: int) -> str:
    """The end of a line that stands for others too."""
    return f" (and {left_out} more like it before)" if left_out else ""


def _finite(value: object) -> object:
    """JSON has no word for an infinite number."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _told(field: str) -> bool:
    """Whether it is ours: libraries such as Ray put private fields into everybody's records."""
    return field not in _PLAIN and not field.startswith("_")


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
