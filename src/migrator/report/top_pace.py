"""Rates and latencies of the last seconds, from what a daemon counts since it began."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from migrator.report.top_reading import RATE_S

_ENDS = ("in_time", "late", "dropped", "failed")
_SHORTEST_S = 0.2
"""Between two looks that say anything about a rate."""


@dataclass(frozen=True)
class Paced:
    """A tenant's last seconds; None: nobody can tell yet."""

    rate_rps: float | None = None
    in_time_rps: float | None = None
    in_time: float | None = None
    """Of those that were answered or given up."""
    p50_ms: float | None = None
    p99_ms: float | None = None


class Pace:
    """Looks at GET /admin/status, the last of `RATE_S` seconds."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, Mapping[str, Any]]] = deque()

    def look(self, at_s: float, answer: Mapping[str, Any]) -> None:
        """What was answered then; another process than before begins to count anew."""
        if self._looks and self._looks[-1][1].get("pid") != answer.get("pid"):
            self._looks.clear()
        self._looks.append((at_s, answer))
        while len(self._looks) > 2 and at_s - self._looks[1][0] >= RATE_S:
            self._looks.popleft()

    def forget(self) -> None:
        """Nobody answers any more."""
        self._looks.clear()

    def of(self, tenant: str) -> Paced:
        """The tenant between the oldest and the newest look."""
        if not self._looks:
            return Paced()
        (first_s, first), (last_s, last) = self._looks[0], self._looks[-1]
        before = first.get("tenants", {}).get(tenant, {})
        now = last.get("tenants", {}).get(tenant, {})
        p50_ms, p99_ms = _latencies_ms(before, now)
        spent_s = last_s - first_s
        if spent_s < _SHORTEST_S:
            return Paced(p50_ms=p50_ms, p99_ms=p99_ms)
        came = {each: now.get(each, 0) - before.get(each, 0) for each in ("received", *_ENDS)}
        ended = sum(came[each] for each in _ENDS)
        return Paced(
            came["received"] / spent_s,
            came["in_time"] / spent_s,
            came["in_time"] / ended if ended else None,
            p50_ms,
            p99_ms,
        )


def _latencies_ms(
    before: Mapping[str, Any], now: Mapping[str, Any]
) -> tuple[float | None, float | None]:
    """Of the answers between two looks; of all since the beginning where there were none."""
    known = now.get("latency")
    if not known:
        return None, None
    counts, bounds_s = known["counts"], known["bounds_s"]
    old = before.get("latency", {}).get("counts", [0] * len(counts))
    new = [late - early for late, early in zip(counts, old, strict=True)]
    chosen = new if sum(new) else counts
    return percentile_ms(bounds_s, chosen, 0.5), percentile_ms(bounds_s, chosen, 0.99)


def percentile_ms(bounds_s: Sequence[float], counts: Sequence[int], part: float) -> float | None:
    """Within the bucket in proportion; beyond the last bound, that bound."""
    wanted, below_s = part * sum(counts), 0.0
    if not wanted:
        return None
    for bound_s, count in zip(bounds_s, counts, strict=False):
        if count >= wanted:
            return 1e3 * (below_s + (bound_s - below_s) * wanted / count)
        wanted, below_s = wanted - count, bound_s
    return 1e3 * bounds_s[-1]
