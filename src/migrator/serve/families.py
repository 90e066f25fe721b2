"""Families of metrics from plain numbers; every name, its words and its labels in one call."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

Values = Mapping[tuple[str, ...], float]
"""Values by their labels."""


@dataclass
class Histogram:
    """How often something took how long."""

    bounds: Sequence[float]
    """Upper bounds, without the infinite one."""
    sum: float = 0.0
    counts: list[int] = field(default_factory=list)
    """In each bucket alone, the infinite one last."""

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, value: float, times: int = 1) -> None:
        """One more, or several of the same."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times


def counter(name: str, words: str, labels: Iterable[str], values: Values) -> Metric:
    """Only grows; its samples are called `name`_total."""
    family = CounterMetricFamily(name, words, labels=list(labels))
    for each, value in values.items():
        family.add_metric(each, value)
    return family


def gauge(name: str, words: str, labels: Iterable[str], values: Values) -> Metric:
    """Goes up and down."""
    family = GaugeMetricFamily(name, words, labels=list(labels))
    for each, value in values.items():
        family.add_metric(each, value)
    return family


def histogram(
    name: str, words: str, labels: Iterable[str], values: Mapping[tuple[str, ...], Histogram]
) -> Iterator[Metric]:
    """How often what took how long; in parts, one after the other, since it has many samples."""
    for each, told in values.items():
        family = HistogramMetricFamily(name, words, labels=list(labels))
        bounds = [*map(str, told.bounds), "+Inf"]
        family.add_metric(each, list(zip(bounds, accumulate(told.counts), strict=True)), told.sum)
        yield family
    if not values:
        yield HistogramMetricFamily(name, words, labels=list(labels))


def info(name: str, words: str, rows: Iterable[Mapping[str, str]]) -> Metric:
    """Words as labels of a 1; its samples are called `name`_info."""
    family = InfoMetricFamily(name, words)
    for each in rows:
        family.add_metric((), dict(each))
    return family
