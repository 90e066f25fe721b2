"""What planner.md says about each study: its figures beside the goals they were made for."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.measure import Row
from benchmarks.record import Record
from benchmarks.tables import (
    Lines,
    at,
    disturbance,
    goal,
    median,
    numbers,
    percent,
    quantile,
    seconds,
    share_proven,
    table,
    times,
)


def _two_tenants(record: Record) -> Lines:
    rows, slots = record.good, record.settings["slots"]
    solve_s = numbers(rows, "solve_s")
    if not solve_s:
        return ["No plan."]
    middle, most, proven = median(solve_s), max(solve_s), share_proven(rows)
    slowest = max(rows, key=lambda row: numbers([row], "solve_s"))
    return [
        f"{len(rows)} random problems, {slots} slots of 1 s, charge `paper`, default time limit.",
        "",
        *table(
            ["solve time", "measured", "goal"],
            [
                ["median", seconds(middle), goal(middle <= 0.06, "at most 0.06 s")],
                ["95th percentile", seconds(quantile(solve_s, 95)), ""],
                ["maximum", seconds(most), goal(most <= 1.0, "never above 1 s")],
                ["proven optimal (gap 0)", percent(proven, 0), goal(proven == 1, "all")],
            ],
        ),
        "",
        f"The slowest is seed {slowest['seed']}. {disturbance(rows)}",
    ]


def _half_second_slots(record: Record) -> Lines:
    rows = record.good
    solve_s = numbers(rows, "solve_s")
    if not solve_s:
        return ["No plan."]
    slots = 2 * record.settings["slots"]
    return [
        f"{len(rows)} random problems of two tenants, {slots} slots of 0.5 s, charge `paper`, "
        "default time limit.",
        "",
        *table(
            ["", "measured", "goal"],
            [
                ["solve time, median", seconds(median(solve_s)), ""],
                ["maximum", seconds(max(solve_s)), goal(max(solve_s) < 1, "under 1 s")],
                ["gap, maximum", percent(max(numbers(rows, "gap")), 3), ""],
                ["proven optimal (gap 0)", percent(share_proven(rows), 0), ""],
            ],
        ),
        "",
        disturbance(rows),
    ]


def _versus_highs(record: Record) -> Lines:
    rows, settings = record.good, record.settings
    ratios = numbers(rows, "ratio")
    if not ratios:
        return ["No plan."]
    bounds = len(at(rows, "ratio_is_lower_bound", True))
    differences = [abs(number) for number in numbers(_finished(rows), "difference")]
    agreement = (
        f"Where HiGHS proves its optimum ({len(differences)} problems), the two goodputs differ "
        f"by at most {max(differences):.2g} requests."
        if differences
        else "HiGHS proved no optimum, so there are no two goodputs to compare."
    )
    return [
        f"Two tenants, {settings['versus_slots']} slots, both to gap 0. The exact planner's time "
        f"is the best of {settings['exact_repeats']}, with its tables; HiGHS's is one run on one "
        f"thread, without building the model, stopped after {settings['highs_limit_s']:g} s.",
        "",
        *table(
            ["seed", "exact", "HiGHS", "columns", "times faster"],
            [_versus_row(row) for row in rows],
        ),
        "",
        *table(
            ["times faster", "measured", "goal"],
            [
                ["median", times(median(ratios)), ""],
                ["minimum", times(min(ratios)), goal(min(ratios) >= 1000, "at least 1,000")],
            ],
        ),
        "",
        *(
            [f"{bounds} of {len(rows)} ratios are lower bounds (≥): HiGHS was stopped."]
            * bool(bounds)
        ),
        agreement,
    ]


def _versus_row(row: Row) -> Lines:
    solve_s, highs_s = numbers([row], "solve_s")[0], numbers([row], "highs_solve_s")[0]
    least = "≥ " if row["ratio_is_lower_bound"] else ""
    return [
        str(row["seed"]),
        f"{1000 * solve_s:.2f} ms",
        seconds(highs_s),
        str(row["highs_columns"]),
        least + times(numbers([row], "ratio")[0]),
    ]


def _finished(rows: list[Row]) -> list[Row]:
    return at(rows, "ratio_is_lower_bound", False)


def _more_tenants(record: Record) -> Lines:
    settings, body = record.settings, []
    for tenants in settings["more_tenants_of"]:
        rows = at(record.good, "tenants", tenants)
        if rows:
            body.append([str(tenants), *_more_row(rows, *_more_goals(tenants))])
    head = ["tenants", "problems", "shortfall median", "max", "goal", "gap median", "max", "goal"]
    head += ["solve median", "max", "proven", "reference proven"]
    worse = len(at(record.good, "long_run_worse", True))
    return [
        f"{settings['slots']} slots, charge `paper`, time limit {settings['short_limit_s']:g} s. "
        f"Shortfall: how far below the best of a run with {settings['long_limit_s']:g} s, which "
        f"was worse {worse} times. Gap: what the short run certifies.",
        "",
        *table(head, body),
    ]


def _more_goals(tenants: int) -> tuple[float, float]:
    """Largest shortfall and gap."""
    return (0.002, 0.02) if tenants == 3 else (0.005, 0.04)


def _more_row(rows: list[Row], most_short: float, most_gap: float) -> Lines:
    short, gap, solve_s = (numbers(rows, key) for key in ("shortfall", "gap", "solve_s"))
    reference = numbers(rows, "reference_gap")
    return [
        str(len(rows)),
        percent(median(short), 3),
        percent(max(short), 3),
        goal(max(short) <= most_short, f"≤ {percent(most_short, 1)}"),
        percent(median(gap), 2),
        percent(max(gap), 2),
        goal(max(gap) <= most_gap, f"≤ {percent(most_gap, 0)}"),
        seconds(median(solve_s)),
        seconds(max(solve_s)),
        percent(share_proven(rows), 0),
        percent(reference.count(0.0) / len(reference), 0),
    ]


def _growth(record: Record) -> Lines:
    settings, body = record.settings, []
    for axis, ticks in growth_axes(record).items():
        for tick in ticks:
            rows = at(at(record.good, "axis", axis), "at", tick)
            if rows:
                body.append([axis, f"{tick:g}", *_growth_row(rows)])
    return [
        f"{settings['growth']} problems each; two tenants, {settings['slots']} slots and drawn "
        f"overheads unless said otherwise; time limit {settings['growth_limit_s']:g} s.",
        "",
        *table(["", "at", "solve median", "min", "max", "gap max", "proven"], body),
    ]


def growth_axes(record: Record) -> dict[str, list[float]]:
    """What was varied, and its values."""
    names = {"slots": "growth_slots", "tenants": "growth_tenants"}
    names["overhead_s"] = "growth_overheads_s"
    return {axis: list(record.settings[setting]) for axis, setting in names.items()}


def _growth_row(rows: list[Row]) -> Lines:
    solve_s = numbers(rows, "solve_s")
    spread = [seconds(value) for value in (median(solve_s), min(solve_s), max(solve_s))]
    return [*spread, percent(max(numbers(rows, "gap")), 3), percent(share_proven(rows), 0)]


def _survivors(record: Record) -> Lines:
    body = []
    for tenants in record.settings["survivors_of"]:
        rows = at(record.good, "tenants", tenants)
        if rows:
            body.append([str(tenants), *_survivors_row(rows)])
    head = ["tenants", "problems", "gap median", "max", "against the paper plan: median", "min"]
    return [
        f"{record.settings['slots']} slots, default time limit. Beside it, the `paper` plan of the "
        "same problem, counted under `survivors`: above 100% the planner for `survivors` wins.",
        "",
        *table([*head, "solve median", "max"], body),
    ]


def _survivors_row(rows: list[Row]) -> Lines:
    gap, relative = numbers(rows, "gap"), numbers(rows, "relative")
    solve_s = numbers(rows, "solve_s")
    against = [median(relative), min(relative)] if relative else []
    return [
        str(len(rows)),
        percent(median(gap), 2),
        percent(max(gap), 2),
        *([percent(row, 2) for row in against] or ["", ""]),
        seconds(median(solve_s)),
        seconds(max(solve_s)),
    ]


def _cold_start(record: Record) -> Lines:
    rows = record.good
    wall_s, peak = numbers(rows, "wall_s"), numbers(rows, "peak_rss_mb")
    if not wall_s:
        return ["No plan."]
    return [
        f"`migrator plan FILE --json` {len(rows)} times on one problem of two tenants, "
        f"{record.settings['slots']} slots, from the start of the process to its end, kernels "
        "compiled before.",
        "",
        *table(
            ["", "median", "maximum", "goal"],
            [
                [
                    "start to answer",
                    seconds(median(wall_s)),
                    seconds(max(wall_s)),
                    goal(max(wall_s) < 1.5, "under 1.5 s"),
                ],
                [
                    "peak memory",
                    f"{median(peak):.0f} MB",
                    f"{max(peak):.0f} MB",
                    goal(max(peak) < 300, "under 300 MB"),
                ],
                ["of it planning", seconds(median(numbers(rows, "solve_s"))), "", ""],
            ],
        ),
    ]


SECTIONS: dict[str, tuple[str, Callable[[Record], Lines]]] = {
    "two_tenants": ("Two tenants", _two_tenants),
    "versus_highs": ("Against HiGHS", _versus_highs),
    "half_second_slots": ("Slots of half a second", _half_second_slots),
    "more_tenants": ("Three to six tenants", _more_tenants),
    "growth": ("How the time grows", _growth),
    "survivors": ("Charge `survivors`", _survivors),
    "cold_start": ("From the command line", _cold_start),
}
