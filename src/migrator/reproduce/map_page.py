"""The map as a page, a picture and numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from migrator.advise.lead_charts import goodput_bars, lead_bars, leads_json
from migrator.advise.leads import LEAST, PEERS, RIVALS, STATIC, Leads, LeadVerdict
from migrator.core.comparison import SeedMean
from migrator.report.page import Axis, Bars, ClassMap, Note, Page, Picture, Section, Table
from migrator.report.paint import GOOD, LATE, UNJUDGED, Paint
from migrator.report.terminal import percent
from migrator.reproduce.experiment import listed, signed, table
from migrator.reproduce.map import MapResults, MapSetting
from migrator.reproduce.map_cells import BASE, Cell, Gain

REPORTED = {"ekya": 0.17, "astraea": 0.21, "paris-reconfiguring": 0.20}
"""Peer, as the paper runs it -> the lead that the paper reports."""
PAINTS = {
    LeadVerdict.PAYS: GOOD,
    LeadVerdict.UNSURE: UNJUDGED,
    LeadVerdict.PEER: replace(LATE, light=True),
    LeadVerdict.STATIC: Paint(None),
}
"""How the cells of each verdict look."""
_ROWS = {
    Gain.PACKAGED: "random\nweights",
    Gain.PUBLISHED: "published\nweights",
    Gain.PAPER: "the paper's\ndrop",
}
_SHORT = {"paris-reconfiguring": "paris-reconf."}


def map_page(results: MapResults) -> Page:
    """The page."""
    setting = results.setting
    sections = [
        Section(
            "Load and gain",
            "load-gain",
            (_reading(results),),
            (class_map(results), _by_load(results), _paper_note(results)),
        )
    ]
    if setting.axes:
        sections.append(
            Section(
                "One condition at a time",
                "conditions",
                (
                    f"Everything else is as in the base cell: {_words(BASE)}. A bar is "
                    "migrator's lead over one rival, with its 95% confidence interval.",
                ),
                (_by_axis(results),),
            )
        )
    cells = (
        "Every cell: migrator's goodput, the ceiling, and leads with 95% confidence intervals. In "
        "brackets: the lead that the ceiling would have.",
    )
    sections.append(Section("All cells", "cells", cells, (_cells_table(results),)))
    how = (*_method(setting), *(f"Gain of {_gain(gain)}: {gain.about}." for gain in Gain))
    sections.append(Section("How it was measured", "method", how))
    return Page("Where MIGRator pays", _lead(results), tuple(sections))


def map_picture(results: MapResults) -> Picture:
    """The figure as a picture."""
    subtitle = "lead in goodput over the best split that never changes, and over the best peer"
    charts = (class_map(results), *((_by_axis(results),) if results.setting.axes else ()))
    return Picture("Where MIGRator pays", subtitle, charts)


def map_figures(results: MapResults) -> dict[str, Any]:
    """The numbers, ready for JSON."""
    nearest = nearest_to_paper(results)
    return {
        "settings": results.setting.as_json(),
        "cells": [
            {
                "load": cell.load,
                "gain": str(cell.gain),
                "length": cell.length,
                "traces": cell.traces,
                "tenants": cell.tenants,
                "workers": "prepared" if cell.prepared else "cold",
                "runs": leads.samples,
                **leads_json(leads),
                "static_splits": list(results.static[cell]),
            }
            for cell, leads in results.leads.items()
        ],
        "paper": REPORTED,
        "nearest_to_paper": {"load": nearest.load, "gain": str(nearest.gain)},
    }


def nearest_to_paper(results: MapResults) -> Cell:
    """The cell of the grid whose leads are nearest to those that the paper reports."""
    return min(
        (cell for row in results.setting.grid for cell in row),
        key=lambda cell: _distance(results.leads[cell]),
    )


def class_map(results: MapResults) -> ClassMap:
    """The grid of load and gain."""
    setting, verdicts = results.setting, list(LeadVerdict)
    nearest = nearest_to_paper(results)
    place = next((at, row.index(nearest)) for at, row in enumerate(setting.grid) if nearest in row)
    return ClassMap(
        title="By load and by what retraining gains",
        columns=tuple(f"load {load:g}" for load in setting.loads),
        rows=tuple(_ROWS[row[0].gain] for row in setting.grid),
        classes=tuple((str(verdict), PAINTS[verdict]) for verdict in verdicts),
        cells=tuple(
            tuple(
                (verdicts.index(results.leads[cell].verdict), _cell_words(results.leads[cell]))
                for cell in row
            )
            for row in setting.grid
        ),
        x=Axis("part of the board that inference alone keeps busy"),
        y=Axis("gain of retraining"),
        marked=place,
        mark=f"nearest to the paper's {_three(REPORTED)} over {_names(REPORTED)}",
    )


def _cell_words(leads: Leads) -> str:
    peers = {name: mean for name, mean in leads.over.items() if name != STATIC}
    best = min(peers, key=lambda peer: math.inf if (e := peers[peer]) is None else e.mean)
    lines = {"static": leads.over[STATIC], _SHORT.get(best, best): peers[best]}
    return "\n".join(f"{_brief(lead)} over {name}" for name, lead in lines.items())


def _brief(lead: SeedMean | None) -> str:
    if lead is None:
        return "all"
    return f"{round(100 * lead.mean) + 0:+d}%".replace("-", "\u2212")


def _three(values: dict[str, float]) -> str:
    return ", ".join(f"{100 * value:+.0f}" for value in values.values()) + "%"


def _names(values: dict[str, float]) -> str:
    return listed("paris" if value.startswith("paris") else value for value in values)


def _distance(leads: Leads) -> float:
    def off(peer: str) -> float:
        lead = leads.over[peer]
        return math.inf if lead is None else lead.mean - REPORTED[peer]

    return math.sqrt(sum(off(peer) ** 2 for peer in REPORTED))


def _by_load(results: MapResults) -> Bars:
    loads = results.setting.loads
    leads = [results.leads[replace(BASE, load=load)] for load in loads]
    title = "Goodput by load (published weights)"
    return goodput_bars(title, [f"{load:g}" for load in loads], leads, Axis("load"))


def _by_axis(results: MapResults) -> Bars:
    cells = {name: cell for axis in results.setting.axes for name, cell in axis.cells.items()}
    leads = [results.leads[cell] for cell in cells.values()]
    title = "migrator's lead over each rival, one condition at a time"
    return lead_bars(title, list(cells), leads, Axis("condition"))


def _cells_table(results: MapResults) -> Table:
    rows = []
    for cell, leads in results.leads.items():
        rows.append(
            (
                _words(cell),
                str(leads.verdict),
                f"{100 * leads.goodput:.1f}",
                f"{100 * leads.ceiling:.1f}",
                *(_lead_cell(leads, rival) for rival in RIVALS),
            )
        )
    headers = (
        "cell",
        "verdict",
        "migrator (%)",
        "ceiling (%)",
        *(f"over {rival}" for rival in RIVALS),
    )
    cells = table("Goodput over received, and leads in goodput", headers, rows)
    return replace(cells, numeric=cells.numeric - {1})


def _lead_cell(leads: Leads, rival: str) -> str:
    lead, most = leads.over[rival], leads.most[rival]
    if lead is None or most is None:
        return "-"
    width = "" if lead.half_width is None else f"\u00a0±\u00a0{100 * lead.half_width:.1f}"
    return f"{signed(lead.mean)}{width} ({signed(most)})"


def _words(cell: Cell) -> str:
    tenants = f", {cell.tenants} tenants" if cell.tenants != BASE.tenants else ""
    length = f", retraining x {cell.length:g}" if cell.length != 1 else ""
    cold = "" if cell.prepared else ", cold workers"
    return f"load {cell.load:g}, {_gain(cell.gain)}, {cell.traces}{tenants}{length}{cold}"


def _reading(results: MapResults) -> str:
    counts = dict.fromkeys(LeadVerdict, 0)
    cells = [cell for row in results.setting.grid for cell in row]
    for cell in cells:
        counts[results.leads[cell].verdict] += 1
    sums = ", ".join(f"{verdict}: {count}" for verdict, count in counts.items())
    return (
        "In every cell the first line is migrator's lead in goodput over the best static split, "
        "chosen in hindsight for every run, and the second its lead over the best peer. Dark "
        f"green: at least {100 * LEAST:g}% ahead of each, and by more than the confidence "
        "interval; light green: not by more than the interval. "
        f"Cells of the grid: {sums}."
    )


def _paper_note(results: MapResults) -> Note:
    nearest = nearest_to_paper(results)
    leads = results.leads[nearest]
    ours = listed(
        f"{signed(lead.mean)} over {peer}"
        for peer in REPORTED
        if (lead := leads.over[peer]) is not None
    )
    most = listed(
        f"{signed(bound)} over {peer}"
        for peer in REPORTED
        if (bound := leads.most[peer]) is not None
    )
    return Note(
        "Where the paper's figures fall",
        (
            f"The paper reports {_three(REPORTED)} over Ekya, Astraea and PARIS, which it "
            "reconfigures at the start and end of retrainings; it states neither its load nor its "
            f"levels of accuracy. Nearest are the leads at {_words(nearest)}: {ours}.",
            f"No planner could lead by more than {most} there: that takes every request in time "
            "and every retraining finished at once.",
            *_out_of_reach(results),
        ),
    )


def _out_of_reach(results: MapResults) -> Iterator[str]:
    cells = [
        cell
        for row in results.setting.grid
        for cell in row
        if any((e := results.leads[cell].most[p]) is not None and e < REPORTED[p] for p in REPORTED)
    ]
    if cells:
        where = listed(f"load {cell.load:g} ({_gain(cell.gain)})" for cell in cells)
        yield f"At least one of the paper's leads lies above that ceiling at {where}."


def _lead(results: MapResults) -> str:
    setting, runs = results.setting, len(results.numbers)
    part = "" if runs == setting.runs else f" (of {setting.runs}: the map is not finished)"
    quick = (
        f" This is the quick map: `{setting.ours}`, which plans once per window, stands for "
        "migrator, and only load and gain are varied."
        if setting.quick
        else ""
    )
    return (
        f"Leads in goodput of migrator over {listed(PEERS)} and the best static split, with 95% "
        f"confidence intervals over {runs} runs per cell{part}.{quick}"
    )


def _method(setting: MapSetting) -> Iterator[str]:
    traces = (
        "generated traces with the real ones' statistics (`MIGRATOR_DATA` names a folder with real "
        "ones)"
        if setting.data is None
        else "real traces"
        + (f" ({listed(setting.generated)} generated)" if setting.generated else "")
    )
    yield (
        f"Each run has {setting.windows} x 200 s of {traces}, with another of the paper's pairs of "
        "models, at another place of the traces, and with another window of the data set first. "
        "All policies get the same requests; intervals are over pairs. Loads are means over a run; "
        "forecasts are `last-mean`."
    )
    yield (
        "Not every combination is run: load and gain make a grid, everything else is varied one at "
        f"a time around the base cell ({_words(BASE)})."
    )
    yield (
        "The ceiling is the goodput with every request answered in time and every retraining "
        "finished at once. The best static split is chosen in hindsight, for every run: no split "
        "that never changes could do better, as far as layouts were tried."
    )


def _gain(gain: Gain) -> str:
    return _ROWS[gain].replace("\n", " ")


def summary(results: MapResults) -> str:
    """A few lines for the terminal."""
    lines = []
    for row in results.setting.grid:
        for cell in row:
            leads = results.leads[cell]
            peers = ", ".join(f"{rival} {_brief(leads.over[rival])}" for rival in RIVALS)
            lines.append(f"load {cell.load:<4g}{_gain(cell.gain):<18} {leads.verdict:<28} {peers}")
    return "\n".join(
        [*lines, f"ceiling at the base: {percent(results.leads[BASE].ceiling)}"]
        if BASE in results.leads
        else lines
    )
