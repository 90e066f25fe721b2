"""Two live runs side by side: goodput in all, by window and by tenant."""

from __future__ import annotations

from migrator.records.outcome import run_outcome
from migrator.records.views import LiveRun
from migrator.report.live_tables import counted_cells
from migrator.report.live_text import moment
from migrator.report.page import Axis, Bars, Section, Series, Table, paint_of
from migrator.report.run_beside import beside_blocks

_HEADERS = (
    *("run", "windows", "received", "goodput", "goodput share", "SLO attainment", "accuracy"),
    *("wrong", "late", "dropped", "failed", "while reconfig\u00aduring"),
)
_WORDS = "Windows that have ended, counted from each run's first."


def beside_section(run: LiveRun, other: LiveRun) -> Section:
    """The run and another one, window by window from their beginnings."""
    runs, names = (run, other), _names(run, other)
    outcomes = [run_outcome(each) for each in runs]
    blocks = (_totals(runs, names), _goodput(runs, names), *beside_blocks(outcomes, names))
    return Section("Side by side", "side-by-side", (_lead(runs, names), _WORDS), blocks)


def _names(run: LiveRun, other: LiveRun) -> tuple[str, str]:
    """The policy where that tells them apart, and the run or its beginning where it does not."""
    rows = run.records.run, other.records.run
    if rows[0].policy != rows[1].policy:
        return rows[0].policy, rows[1].policy
    if rows[0].run != rows[1].run:
        return f"{rows[0].policy}, run {rows[0].run}", f"{rows[1].policy}, run {rows[1].run}"
    first, second = (f"{each.policy}, {moment(each.began_s)}" for each in rows)
    return first, second


def _lead(runs: tuple[LiveRun, LiveRun], names: tuple[str, str]) -> str:
    ours, theirs = (each.whole for each in runs)
    said = " and ".join(
        f"{name} {each.whole.goodput or 0:,.0f} of {each.whole.received:,}"
        for each, name in zip(runs, names, strict=True)
    )
    if ours.share is None or not theirs.share:
        return f"Goodput: {said}."
    change = ours.share / theirs.share - 1
    side = "above" if change >= 0 else "below"
    return f"Goodput: {said}; {names[0]}'s share is {abs(change):.1%} {side} {names[1]}'s."


def _totals(runs: tuple[LiveRun, LiveRun], names: tuple[str, str]) -> Table:
    rows = tuple(
        (name, str(sum(window.ended for window in each.windows)), *counted_cells(each.whole))
        for each, name in zip(runs, names, strict=True)
    )
    shares = [each.whole.share or 0.0 for each in runs]
    best = {(shares.index(max(shares)), 4)} if shares[0] != shares[1] else set()
    numeric = frozenset(range(1, len(_HEADERS)))
    return Table("All windows that have ended", _HEADERS, rows, numeric, frozenset(best))


def _goodput(runs: tuple[LiveRun, LiveRun], names: tuple[str, str]) -> Bars:
    ended = [[window.whole.goodput for window in each.windows if window.ended] for each in runs]
    longest = max(map(len, ended))
    series = tuple(
        Series(name, tuple(own + [None] * (longest - len(own))), paint=paint_of(at))
        for at, (own, name) in enumerate(zip(ended, names, strict=True))
    )
    categories = tuple(map(str, range(longest)))
    goodput = Axis("goodput", "requests")
    return Bars("Goodput by window", categories, series, Axis("window of its run"), goodput)
