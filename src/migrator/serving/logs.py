"""Log lines of the daemon and its workers, as text or as JSON, one record per line.

Fields of a record (tenant, window, request_id...) are passed to the logger as `extra`; JSON shows
all of them, text only the message.
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
"""Tells child processes the format."""

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160), 0x2028, 0x2029)}
"""Text of a client must not begin a new line, nor control a terminal."""


class OurHandler(logging.StreamHandler[IO[str]]):
    """The handler that `configure` installs, and replaces when it is called again."""


class JsonLines(logging.Formatter):
    """time, level, logger, message, then the extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for key, value in vars(record).items():
            # libraries such as Ray add private fields to all records
            if key not in _PLAIN and not key.startswith("_"):
                infinite = isinstance(value, float) and not math.isfinite(value)
                line[key] = str(value) if infinite else value  # JSON has no infinite numbers
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class TextLines(logging.Formatter):
    """Time, level and message; an exception follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage().translate(_CONTROLS)
        line = f"{_time(record)} {record.levelname:<7} {message}"
        if record.exc_info:
            line += f"\n{self.formatException(record.exc_info)}"
        return line


def configure(form: str = "text", level: str = "info", stream: IO[str] | None = None) -> None:
    """Send all log lines of this process to `stream`, by default stderr."""
    handler = OurHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    root = logging.getLogger()
    for earlier in [handler for handler in root.handlers if isinstance(handler, OurHandler)]:
        root.removeHandler(earlier)
    root.addHandler(handler)
    logging.getLogger("migrator").setLevel(level.upper())


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


@dataclass(slots=True)
class _LineCount:
    since_s: float
    lines: int = 0
    omitted: int = 0


class LineLimiter:
    """Limits log lines of each kind to a few per second."""

    def __init__(
        self, most: int = 5, each_s: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most, self._each_s, self._clock = most, each_s, clock
        self._kinds: dict[Hashable, _LineCount] = {}

    def log(
        self,
        logger: logging.Logger,
        level: int,
        kind: Hashable,
        message: str,
        *,
        error: BaseException | None = None,
        **fields: object,
    ) -> None:
        """Log a line, unless there were too many of its kind, of which there must be few."""
        now_s = self._clock()
        count = self._kinds.setdefault(kind, _LineCount(now_s))
        if now_s - count.since_s >= self._each_s:
            count.since_s, count.lines = now_s, 0
        if count.lines >= self._most:
            count.omitted += 1
            return
        omitted, count.omitted = count.omitted, 0
        count.lines += 1
        more = f" (and {omitted} more like it before)" if omitted else ""
        fields["left_out"] = omitted
        logger.log(level, "%s%s", message, more, exc_info=error, extra=fields)
