"""A tenant's last seconds: rates and latencies, from status replies or from records."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from migrator.records.rows import SecondRecord
from migrator.records.store import RATE_S

_ENDS = ("in_time", "late", "dropped", "failed")
_SHORTEST_S = 0.2
"""The least time between two replies from which a rate is computed."""


@dataclass(frozen=True)
class RecentTraffic:
    """A tenant's last seconds; None: unknown."""

    rate_rps: float | None = None
    in_time_rps: float | None = None
    in_time: float | None = None
    """Share of those that ended, by an answer or otherwise."""
    p50_ms: float | None = None
    p99_ms: float | None = None


class RateMeter:
    """Keeps the status replies of the last `RATE_S` seconds."""

    def __init__(self) -> None:
        self._replies: deque[tuple[float, Mapping[str, Any]]] = deque()

    def add(self, at_s: float, reply: Mapping[str, Any]) -> None:
        """Add a reply; one of another process starts the measurement again."""
        if self._replies and self._replies[-1][1].get("pid") != reply.get("pid"):
            self._replies.clear()
        self._replies.append((at_s, reply))
        while len(self._replies) > 2 and at_s - self._replies[1][0] >= RATE_S:
            self._replies.popleft()

    def clear(self) -> None:
        """Forget all replies, as after a reply that did not arrive."""
        self._replies.clear()

    def pace(self, tenant: str) -> RecentTraffic:
        """The tenant between the oldest and the newest reply."""
        if not self._replies:
            return RecentTraffic()
        (first_s, first), (last_s, last) = self._replies[0], self._replies[-1]
        before = first.get("tenants", {}).get(tenant, {})
        now = last.get("tenants", {}).get(tenant, {})
        p50_ms, p99_ms = _latencies_ms(before, now)
        spent_s = last_s - first_s
        if spent_s < _SHORTEST_S:
            return RecentTraffic(p50_ms=p50_ms, p99_ms=p99_ms)
        new = {count: now.get(count, 0) - before.get(count, 0) for count in ("received", *_ENDS)}
        ended = sum(new[end] for end in _ENDS)
        return RecentTraffic(
            new["received"] / spent_s,
            new["in_time"] / spent_s,
            new["in_time"] / ended if ended else None,
            p50_ms,
            p99_ms,
        )


def recorded_traffic(seconds: Sequence[SecondRecord]) -> RecentTraffic:
    """The pace of one tenant from its last recorded seconds."""
    spent_s = sum(second.span_s for second in seconds)
    if not spent_s:
        return RecentTraffic()
    in_time = sum(second.in_time or 0 for second in seconds)
    ended = in_time + sum(second.late + second.dropped + second.failed for second in seconds)
    rate_rps = sum(second.received for second in seconds) / spent_s
    return RecentTraffic(rate_rps, in_time / spent_s, in_time / ended if ended else None)


def _latencies_ms(
    before: Mapping[str, Any], now: Mapping[str, Any]
) -> tuple[float | None, float | None]:
    """Of the answers between two replies; of all answers if there were none in between."""
    histogram = now.get("latency")
    if not histogram:
        return None, None
    counts, bounds_s = histogram["counts"], histogram["bounds_s"]
    old = before.get("latency", {}).get("counts", [0] * len(counts))
    new = [late - early for late, early in zip(counts, old, strict=True)]
    chosen = new if sum(new) else counts
    return percentile_ms(bounds_s, chosen, 0.5), percentile_ms(bounds_s, chosen, 0.99)


def percentile_ms(bounds_s: Sequence[float], counts: Sequence[int], part: float) -> float | None:
    """Interpolated within its bucket; beyond the last bound, that bound."""
    wanted, below_s = part * sum(counts), 0.0
    if not wanted:
        return None
    for bound_s, count in zip(bounds_s, counts, strict=False):
        if count >= wanted:
            return 1e3 * (below_s + (bound_s - below_s) * wanted / count)
        wanted, below_s = wanted - count, bound_s
    return 1e3 * bounds_s[-1]
