"""Charts, cells and JSON of migrator's leads, for the advice and for the map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from migrator.advise.leads import OURS, RIVALS, Leads
from migrator.core.comparison import SeedMean
from migrator.report.page import Axis, Bars, Series
from migrator.report.paint import Paint, policy_paints

LOOKS = dict(zip((OURS, *RIVALS), policy_paints((OURS, *RIVALS)), strict=True))
"""The looks of migrator and its rivals."""


def goodput_bars(title: str, categories: Sequence[str], leads: Sequence[Leads], x: Axis) -> Bars:
    """The goodput of the ceiling, of migrator and of every rival, by category."""
    series = [
        Series("ceiling", tuple(lead.ceiling for lead in leads), paint=Paint(None, light=True)),
        Series(OURS, tuple(lead.goodput for lead in leads), paint=LOOKS[OURS]),
    ]
    for rival in RIVALS:
        shares = tuple(lead.shares[rival] for lead in leads)
        series.append(Series(rival, shares, paint=LOOKS[rival]))
    y = Axis("goodput over received", share=True)
    return Bars(title, tuple(categories), tuple(series), x, y)


def lead_bars(title: str, categories: Sequence[str], leads: Sequence[Leads], x: Axis) -> Bars:
    """migrator's lead over every rival with its interval, by category."""
    series = []
    for rival in RIVALS:
        over = [lead.over[rival] for lead in leads]
        means = tuple(None if mean is None else mean.mean for mean in over)
        widths = tuple(None if mean is None else mean.half_width for mean in over)
        series.append(Series(rival, means, widths, LOOKS[rival]))
    y = Axis("lead in goodput", share=True)
    return Bars(title, tuple(categories), tuple(series), x, y)


def leads_json(leads: Leads) -> dict[str, Any]:
    """The leads, ready for JSON."""
    return {
        "verdict": str(leads.verdict),
        "goodput": leads.goodput,
        "ceiling": leads.ceiling,
        "goodput_of": dict(leads.shares),
        "leads": {name: _lead_json(lead) for name, lead in leads.over.items()},
        "most": dict(leads.most),
    }


def _lead_json(lead: SeedMean | None) -> dict[str, float | None] | None:
    return None if lead is None else {"mean": lead.mean, "half_width": lead.half_width}
