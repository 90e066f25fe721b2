"""migrator's lead over its rivals, with confidence intervals over paired samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from migrator.core.comparison import SeedMean, t95

OURS = "migrator"
PEERS = ("ekya", "astraea", "paris-reconfiguring", "paris", "equal-mig")
"""Policies of other papers, and the board split evenly."""
STATIC = "best static split"
RIVALS = (*PEERS, STATIC)
LEAST = 0.02
"""Relative lead below which a simpler way will do."""


class LeadVerdict(StrEnum):
    """What leads over a static split and over peers mean."""

    PAYS = "MIGRator pays"
    UNSURE = "ahead, but not surely"
    PEER = "another policy does as well"
    STATIC = "a static split will do"


@dataclass(frozen=True)
class Sample:
    """One pair of measurements: the goodput of every policy on the same requests."""

    received: float
    ceiling: float
    goodput: Mapping[str, float]


@dataclass(frozen=True)
class Leads:
    """migrator's lead over every rival and what the ceiling leaves, over paired samples."""

    samples: int
    goodput: float
    """migrator's goodput over received."""
    ceiling: float
    """The ceiling's goodput over received."""
    shares: Mapping[str, float]
    """Rival -> its goodput over received."""
    over: Mapping[str, SeedMean | None]
    """Rival -> relative lead; None if the rival has no goodput."""
    most: Mapping[str, float | None]
    """Rival -> the lead that the ceiling would have."""

    @property
    def rival(self) -> str:
        """The rival with the most goodput."""
        return min(self.over, key=lambda policy: _mean(self.over[policy]))

    @property
    def verdict(self) -> LeadVerdict:
        """Whether migrator pays: it is ahead of every rival by `LEAST`, and surely ahead.

        A static split will do if nothing is ahead of it by `LEAST`.
        """
        best = max([self.goodput, *self.shares.values()])
        if best < (1 + LEAST) * self.shares.get(STATIC, 0.0):
            return LeadVerdict.STATIC
        if any(_mean(mean) < LEAST for mean in self.over.values()):
            return LeadVerdict.PEER
        sure = all(mean is None or _is_sure(mean) for mean in self.over.values())
        return LeadVerdict.PAYS if sure else LeadVerdict.UNSURE


def measure_leads(samples: Sequence[Sample]) -> Leads:
    """Leads over at least one sample with requests; every sample has the same policies."""
    ours = [sample.goodput[OURS] for sample in samples]
    rivals = [name for name in samples[0].goodput if name != OURS]
    theirs = {rival: [sample.goodput[rival] for sample in samples] for rival in rivals}
    received = math.fsum(sample.received for sample in samples)
    highest = math.fsum(sample.ceiling for sample in samples)
    return Leads(
        samples=len(samples),
        goodput=math.fsum(ours) / received,
        ceiling=highest / received,
        shares={rival: math.fsum(values) / received for rival, values in theirs.items()},
        over={rival: paired_lead(ours, values) for rival, values in theirs.items()},
        most={
            rival: highest / total - 1 if (total := math.fsum(values)) > 0 else None
            for rival, values in theirs.items()
        },
    )


def paired_lead(ours: Sequence[float], theirs: Sequence[float]) -> SeedMean | None:
    """The relative lead of the sum of `ours` over that of `theirs`; None if the latter is 0.

    The interval is that of a ratio of means: Student's t on the differences of each pair from it.
    """
    count, total = len(ours), math.fsum(theirs)
    if total <= 0:
        return None
    ratio = math.fsum(ours) / total
    if count == 1:
        return SeedMean(ratio - 1, None)
    off = [a - ratio * b for a, b in zip(ours, theirs, strict=True)]
    spread = math.sqrt(
        math.fsum(difference * difference for difference in off) / (count - 1) / count
    )
    return SeedMean(ratio - 1, t95(count - 1) * spread / (total / count))


def _is_sure(lead: SeedMean) -> bool:
    """Whether the interval excludes 0; a single sample has none and says nothing."""
    return lead.half_width is not None and lead.mean > lead.half_width


def _mean(lead: SeedMean | None) -> float:
    return math.inf if lead is None else lead.mean
