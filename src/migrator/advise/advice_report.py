"""Advice in words and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from migrator.advise.advice import Advice, AtLoad, Change
from migrator.advise.leads import RIVALS, STATIC, LeadVerdict
from migrator.core.comparison import SeedMean
from migrator.report.terminal import table_lines, wrapped

_LEAST_CHANGE = 0.005
"""Relative change of goodput from which a change helps."""
_ANSWERS = {
    LeadVerdict.PAYS: "Yes, dynamic reconfiguration pays",
    LeadVerdict.UNSURE: "Probably: migrator is ahead of everything else, but not by more than the "
    "confidence interval",
    LeadVerdict.PEER: "Not with migrator: another policy does as well or better",
    LeadVerdict.STATIC: "No, a static split will do",
}
_SHORT = {"paris-reconfiguring": "paris-reconf.", STATIC: "static"}


def advice_text(advice: Advice) -> str:
    """A short answer first, then the numbers."""
    lines: list[str] = []
    for sentence in sentences(advice):
        lines += wrapped(sentence, indent="")
    headers = (
        "load",
        "of board",
        *("goodput %", "ceiling %"),
        *(_SHORT.get(rival, rival) for rival in RIVALS),
    )
    rows = [
        (
            f"x {load.times:g}",
            f"{load.board_load:.2f}",
            f"{100 * load.leads.goodput:.1f}",
            f"{100 * load.leads.ceiling:.1f}",
            *(_brief(load.leads.over[rival]) for rival in RIVALS),
        )
        for load in advice.loads
    ]
    lines += ["", *table_lines(headers, [rows], text_columns=1, shrinks=0)]
    lines += wrapped(
        "goodput: migrator's requests answered in time and correctly, over received; ceiling: what "
        "no planner can pass; other columns: migrator's lead over that policy"
    )
    return "\n".join(lines)


def sentences(advice: Advice) -> Iterator[str]:
    """The answer in words."""
    today = advice.today
    yield f"{_ANSWERS[today.leads.verdict]}, at today's load ({today.board_load:.2f} of the board)."
    yield f"{_comparison(today)}."
    yield " ".join(f"{_elsewhere(load)}." for load in advice.loads if load is not today)
    yield _change_sentence(advice)


def _comparison(at: AtLoad) -> str:
    peers = {name: mean for name, mean in at.leads.over.items() if name != STATIC}
    best = min(peers, key=lambda peer: _mean(peers[peer]))
    return (
        f"migrator answers {_words(at.leads.over[STATIC])} requests in time and correctly than "
        f"the best static split ({at.static}), and {_words(peers[best])} than the best peer "
        f"({best}); no planner could answer more than "
        f"{100 * (at.leads.ceiling / at.leads.goodput - 1 if at.leads.goodput else 0):.1f}% more "
        "than migrator"
    )


def _elsewhere(at: AtLoad) -> str:
    verdict = {
        LeadVerdict.PAYS: "it pays",
        LeadVerdict.UNSURE: "it is ahead, but not surely",
        LeadVerdict.PEER: f"{at.leads.rival} does as well or better",
        LeadVerdict.STATIC: "a static split will do",
    }[at.leads.verdict]
    static = _brief(at.leads.over[STATIC])
    return f"At {at.times:g} times the load {verdict} ({static} over static)"


def _change_sentence(advice: Advice) -> str:
    helping = {change: part for change, part in advice.changes.items() if part >= _LEAST_CHANGE}
    if not helping:
        first = "Nothing that was tried helps by half a percent or more."
    else:
        best, *others = (f"{change} ({_percent(part)})" for change, part in helping.items())
        rest = f"; then {', '.join(others)}" if others else ""
        first = f"What helps migrator's goodput most: {best}{rest}."
    idle = [
        f"{change} ({_percent(part)})"
        for change, part in advice.changes.items()
        if change not in helping
    ]
    if idle and helping:
        first += f" These do not help: {', '.join(idle)}."
    if Change.BOARD in advice.changes:
        first += f" The larger board is {advice.larger}."
    left = "; ".join(f"{change}: {why}" for change, why in advice.unused.items())
    return f"{first} Not tried: {left}." if left else first


def advice_json(advice: Advice) -> dict[str, Any]:
    """The advice, ready for JSON."""
    return {
        "scenario": advice.scenario,
        "board": advice.board,
        "windows": advice.windows,
        "seeds": advice.seeds,
        "answer": list(sentences(advice)),
        "loads": [
            {
                "times": load.times,
                "board_load": load.board_load,
                "static_split": load.static,
                "verdict": str(load.leads.verdict),
                "goodput": load.leads.goodput,
                "ceiling": load.leads.ceiling,
                "goodput_of": dict(load.leads.shares),
                "leads": {
                    name: None if lead is None else asdict(lead)
                    for name, lead in load.leads.over.items()
                },
                "most": dict(load.leads.most),
            }
            for load in advice.loads
        ],
        "changes": {str(change): part for change, part in advice.changes.items()},
        "not_tried": {str(change): why for change, why in advice.unused.items()},
    }


def _mean(lead: SeedMean | None) -> float:
    return float("inf") if lead is None else lead.mean


def _words(lead: SeedMean | None) -> str:
    if lead is None:
        return "infinitely more"
    if abs(lead.mean) < 0.0005:
        return "no more"
    width = "" if lead.half_width is None else f" (±{100 * lead.half_width:.1f})"
    return f"{abs(100 * lead.mean):.1f}%{width} {'more' if lead.mean >= 0 else 'fewer'}"


def _brief(lead: SeedMean | None) -> str:
    return "-" if lead is None else _percent(lead.mean)


def _percent(part: float) -> str:
    return f"{round(100 * part, 1) + 0.0:+.1f}%"
