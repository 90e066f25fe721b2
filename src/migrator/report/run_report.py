"""The report of `migrator simulate`: one page on what a run or several gave, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from migrator.core.catalogue import Board
from migrator.core.comparison import summarise
from migrator.core.outcome import RunOutcome, Tally, WindowOutcome
from migrator.report.page import (
    Axis,
    Bars,
    Block,
    Note,
    Page,
    Section,
    Series,
    Table,
    anchor_of,
)
from migrator.report.run_allocation import allocation_charts
from migrator.report.run_beside import beside_blocks
from migrator.report.run_charts import (
    arrivals_chart,
    fate_chart,
    promise_chart,
    tenant_fate_chart,
)
from migrator.report.run_words import forecast_sentences, lead_paragraphs

MOST_WINDOWS = 12
"""Windows whose allocation and arrivals are drawn."""
_MOST_ROWS = 60
"""A longer table is folded away."""
_TALLY = ("received", "goodput", "goodput share", "SLO attainment", "accuracy")
_WORDS = (
    "Goodput share and SLO attainment are parts of what was received; accuracy is the correct part "
    "of what was answered in time. While reconfiguring: of the late and dropped, those that came "
    "while an instance of theirs was not yet warm. Queued: waiting at the end, less those that "
    "waited at the start."
)
_RECONFIGURATIONS = "reconfig\u00adurations"
_LOST = ("wrong", "late", "dropped", "queued", "while reconfig\u00aduring")


def run_page(
    outcomes: Sequence[RunOutcome],
    board: Board,
    slot_s: float,
    overhead_s: Mapping[str, float] | None = None,
) -> Page:
    """The page of at least one run, all on `board`.

    `overhead_s`, by tenant, lets cold starts be drawn as long as they are.
    """
    names = _labels(outcomes)
    sections = [_result(outcomes, names)]
    for number, (run, name) in enumerate(zip(outcomes, names, strict=True)):
        anchor = f"run-{number}-{anchor_of(name)}"
        sections.append(_run_section(run, name, anchor))
        sections.append(_windows_section(run, name, anchor, board, slot_s, overhead_s or {}))
    return Page(f"MIGRator: {_title(outcomes)}", _lead(outcomes, board, slot_s), tuple(sections))


def _title(outcomes: Sequence[RunOutcome]) -> str:
    scenarios = list(dict.fromkeys(each.scenario for each in outcomes))
    return scenarios[0] if len(scenarios) == 1 else f"{len(scenarios)} scenarios"


def _labels(outcomes: Sequence[RunOutcome]) -> list[str]:
    """The policy, and whatever else tells a run from the others."""
    several = {
        "scenario": len({each.scenario for each in outcomes}) > 1,
        "forecaster": len({each.forecaster for each in outcomes}) > 1,
        "seed": len({each.seed for each in outcomes}) > 1,
    }
    labels = []
    for run in outcomes:
        parts = [run.policy]
        parts += [run.scenario] * several["scenario"]
        parts += [f"{run.forecaster} forecast"] * several["forecaster"]
        parts += [f"seed {run.seed}"] * several["seed"]
        labels.append(", ".join(parts))
    return labels


def _lead(outcomes: Sequence[RunOutcome], board: Board, slot_s: float) -> str:
    run = outcomes[0]
    windows = "1 window" if len(run.windows) == 1 else f"{len(run.windows)} windows"
    slots = len(run.windows[0].slots) if run.windows else 0
    tenants = ", ".join(run.tenants)
    return (
        f"{board.name}, {windows} of {slots * slot_s:g} s in slots of {slot_s:g} s, "
        f"tenants {tenants}; forecaster {run.forecaster}, seed {run.seed}. "
        "Goodput counts requests answered in time and correctly."
    )


# What came out


def _result(outcomes: Sequence[RunOutcome], names: Sequence[str]) -> Section:
    best = max(range(len(outcomes)), key=lambda at: outcomes[at].tally.goodput_share)
    headers = ("policy", *_TALLY, *_LOST, _RECONFIGURATIONS, "planning (s)")
    rows = tuple(
        (name, *_tally_cells(run.tally), f"{run.reconfigurations:,}", f"{run.plan_s:.3g}")
        for run, name in zip(outcomes, names, strict=True)
    )
    table = Table(
        caption="All windows and tenants together",
        headers=headers,
        rows=rows,
        numeric=frozenset(range(1, len(headers))),
        highlights=frozenset({(best, 3)}) if len(outcomes) > 1 else frozenset(),
    )
    blocks: tuple[Block, ...] = (table,)
    if len(outcomes) > 1:
        blocks = (_ranking(outcomes, names), table, *beside_blocks(outcomes, names))
    words = (_headline(outcomes[best], names[best]), *lead_paragraphs(summarise(outcomes)))
    return Section("Result", "result", words, blocks)


def _headline(run: RunOutcome, name: str) -> str:
    tally = run.tally
    return (
        f"{name}: {tally.goodput:,.0f} of {tally.received:,} requests were answered in time and "
        f"correctly, {tally.goodput_share:.1%}. {tally.slo_attainment:.1%} were in time, and of "
        f"those {tally.accuracy:.1%} correct. {tally.while_reconfiguring:,} of the late and "
        f"dropped ones came while an instance of theirs was not yet warm."
    )


def _ranking(outcomes: Sequence[RunOutcome], names: Sequence[str]) -> Bars:
    pairs = sorted(
        zip(names, (each.tally.goodput_share for each in outcomes), strict=True),
        key=lambda pair: -pair[1],
    )
    return Bars(
        title="Goodput share",
        categories=tuple(name for name, _ in pairs),
        series=(Series("goodput share", tuple(share for _, share in pairs)),),
        x=Axis("policy"),
        y=Axis("goodput over received", share=True),
        horizontal=True,
    )


def _tally_cells(tally: Tally) -> tuple[str, ...]:
    parts = (tally.goodput_share, tally.slo_attainment, tally.accuracy)
    lost = (tally.wrong, tally.late, tally.dropped, tally.queued, tally.while_reconfiguring)
    return (
        f"{tally.received:,}",
        f"{tally.goodput:,.0f}",
        *(f"{each:.1%}" for each in parts),
        *(f"{each:,.0f}" for each in lost),
    )


# One run


def _run_section(run: RunOutcome, name: str, anchor: str) -> Section:
    blocks: list[Block | None] = [fate_chart(run), _window_table(run)]
    if len(run.tenants) > 1:
        blocks.append(tenant_fate_chart(run))
    blocks += [_tenant_table(run), promise_chart(run), _promise_table(run)]
    shown = tuple(each for each in blocks if each is not None)
    return Section(f"{name}: windows and tenants", anchor, (_WORDS,), shown)


def _window_table(run: RunOutcome) -> Table:
    headers = ("window", *_TALLY, *_LOST, _RECONFIGURATIONS, "planning (s)")
    rows = tuple(
        (
            str(each.window),
            *_tally_cells(each.tally),
            f"{each.reconfigurations:,}",
            f"{each.plan_s:.3g}",
        )
        for each in run.windows
    )
    return Table(
        caption="By window, all tenants together",
        headers=headers,
        rows=rows,
        numeric=frozenset(range(1, len(headers))),
        folded=len(rows) > _MOST_ROWS,
    )


def _promise_table(run: RunOutcome) -> Table | None:
    """What was promised beside what was measured; None where nothing was promised."""
    if all(each.predicted is None and each.fluid is None for each in run.windows):
        return None
    headers = (
        *("window", "measured", "predicted", "predicted to measured"),
        *("fluid", "fluid to measured"),
    )
    rows = tuple(
        (
            str(each.window),
            f"{each.tally.goodput:,.0f}",
            *_promise_cells(each.predicted, each.tally.goodput),
            *_promise_cells(each.fluid, each.tally.goodput),
        )
        for each in run.windows
    )
    return Table(
        caption="Goodput the plan predicted, its fluid model's on what came, and measured",
        headers=headers,
        rows=rows,
        numeric=frozenset(range(1, len(headers))),
        folded=len(rows) > _MOST_ROWS,
    )


def _promise_cells(promised: float | None, measured: float) -> tuple[str, str]:
    """A promise, and by which part it is above what was measured."""
    if promised is None:
        return "-", "-"
    return f"{promised:,.0f}", f"{promised / measured - 1:+.1%}" if measured else "-"


def _tenant_table(run: RunOutcome) -> Table:
    last = (_RECONFIGURATIONS, "retrained")
    headers = ("window", "tenant", *_TALLY, *_LOST, *last)
    rows = tuple(_tenant_rows(run))
    return Table(
        caption="By window and tenant",
        headers=headers,
        rows=rows,
        numeric=frozenset(range(2, len(headers) - 1)),
        folded=len(rows) > _MOST_ROWS,
    )


def _tenant_rows(run: RunOutcome) -> Iterator[tuple[str, ...]]:
    for window in run.windows:
        for each in window.tenants:
            retrained = f"never, {each.accuracy_before:.1%}"
            if each.retrained_s is not None:
                change = f"{each.accuracy_before:.1%} → {each.accuracy_after:.1%}"
                retrained = f"{each.retrained_s:g} s, {change}"
            tally = _tally_cells(each.tally)
            yield str(window.window), each.tenant, *tally, f"{each.reconfigurations:,}", retrained


# Window by window


def _windows_section(
    run: RunOutcome,
    name: str,
    anchor: str,
    board: Board,
    slot_s: float,
    overhead_s: Mapping[str, float],
) -> Section:
    tenants = list(run.tenants)
    shown = run.windows[:MOST_WINDOWS]
    blocks: list[Block] = []
    before: WindowOutcome | None = None
    for window in shown:
        held = before.slots[-1] if before and before.slots else None
        blocks += allocation_charts(window, held, board, slot_s, tenants, overhead_s)
        if any(each.received for each in window.tenants):
            blocks.append(arrivals_chart(window, slot_s, tenants))
        sentences = forecast_sentences(window, run.forecaster)
        if sentences:
            blocks.append(Note(f"Window {window.window}: who forecast, and why", sentences))
        before = window
    words = [
        "What every task held and what came meanwhile; hatched where a tenant retrains. "
        + _cold_words(overhead_s)
    ]
    if len(shown) < len(run.windows):
        words.append(f"The first {len(shown)} of {len(run.windows)} windows are drawn.")
    return Section(f"{name}: allocation over time", f"{anchor}-time", tuple(words), tuple(blocks))


def _cold_words(overhead_s: Mapping[str, float]) -> str:
    if overhead_s:
        return "New instances are light until they are warm."
    return "A triangle marks an instance that is new and therefore starts cold."
