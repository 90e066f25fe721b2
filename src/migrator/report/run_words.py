"""Sentences about runs, the same on a terminal and on a page."""

from __future__ import annotations

from collections.abc import Iterable

from migrator.core.comparison import Lead, Row, leads
from migrator.core.outcome import WindowOutcome


def lead_sentences(rows: Iterable[Row]) -> dict[str, str]:
    """Scenario -> what replanning regains of the oracle's lead, where all three were run."""
    return {each.scenario: lead_sentence(each) for each in leads(rows)}


def lead_paragraphs(rows: Iterable[Row]) -> tuple[str, ...]:
    """The same for a page; the scenario is named where there are several."""
    found = lead_sentences(rows)
    if len(found) > 1:
        return tuple(f"{scenario}: {sentence}." for scenario, sentence in found.items())
    return tuple(f"{each[0].upper()}{each[1:]}." for each in found.values())


def lead_sentence(lead: Lead) -> str:
    """Window plan, replanned and oracle, and what replanning regains."""
    return (
        f"window plan {lead.window_plan:.2%}, replanned {lead.replanned:.2%}, "
        f"oracle {lead.oracle:.2%}: {_regained(lead.regained)}"
    )


def _regained(part: float | None) -> str:
    if part is None:
        return "the oracle has no lead to regain"
    if round(part, 2) < 0:
        return f"replanning costs {-part:.0%} of the oracle's lead"
    return f"replanning regains {abs(part):.0%} of the oracle's lead"


def forecast_sentences(window: WindowOutcome, forecaster: str, when: str = "") -> tuple[str, ...]:
    """Who forecast each tenant and why, where that was more than the run's `forecaster`."""
    return tuple(
        f"{each.tenant} forecast{when} by {each.forecast_by}"
        for each in window.tenants
        if each.forecast_by not in {None, forecaster}
    )
