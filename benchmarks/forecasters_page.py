"""The page of benchmarks.forecasters, from its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import mean
from typing import Any

from benchmarks.headline_page import Gain
from benchmarks.headline_scenarios import KINDS
from benchmarks.runs import table

Json = dict[str, Any]
SIMPLEST, TRUTH = "last-mean", "truth"
PLANNERS = {"migrator": "loop", "migrator-once": "once"}
"""Policies in the loop, and the names of their rows."""
RunId = tuple[str, int]


def page(record: Json) -> str:
    """The whole page."""
    errors, loop = record["errors"], _complete(record["loop"])
    return "\n".join(
        [
            "# Forecasters",
            "",
            f"`{record['command']}`: workloads, places, rates and windows of the [evaluation "
            "protocol](../evaluation-protocol.md) at load 0.8, windows of 200 s. In brackets 95% "
            "intervals as there. Forecasters get all of the trace before the window; "
            f"`{SIMPLEST}` is the simplest, `auto-ets` is "
            "[AutoETS](../forecasting.md#a-librarys-model) of statsforecast.",
            "",
            _training(record["training"]),
            "",
            *_decision(loop),
            "",
            "## Goodput in the loop",
            "",
            f"`{TRUTH}` is what really arrives. *Gain*: over `{SIMPLEST}`, of the same workload, "
            f"place and seed, which are a run; *same*: runs in which it is 0, because the plans "
            "are the same. `migrator` plans again on the last seconds within the window, whatever "
            "forecasts the window; `migrator-once` does not.",
            *_loops(record),
            "",
            "## Errors",
            "",
            "*WAPE*: absolute error per second of the scenarios' mean, over the mean received. "
            f"*Pinball*: loss of the 10%, 50% and 90% quantiles, against `{SIMPLEST}`'s of the "
            f"same place (below 0 is better). {_amount(errors)}",
            "",
            *_errors(errors),
            *_missing_errors(record),
            "",
        ]
    )


def _training(training: Json) -> str:
    shape, settings, summary = (training[part] for part in ("shape", "settings", "summary"))
    return (
        f"The Informer: {shape['width']} wide, {shape['heads']} heads, {shape['encoder_layers']} "
        f"encoder layers with distilling, {shape['decoder_layers']} decoder layer; {_tokens(shape)}"
        ", one second each. Trained on a week of generated arrivals of each of the six kinds "
        f"({summary['slots']:,} s at {training['rps']:g} requests per second, late copies added "
        "up as in the runs), so that it saw no place of a real trace: "
        f"{settings['steps']:,} steps of {settings['batch']} windows, seed {settings['seed']}, "
        f"{training['cpu_s']:.0f} s of CPU, {settings['device']}. On the last tenth of the weeks "
        f"its WAPE is {summary['wape']:.3f}, that of `{SIMPLEST}` {summary['wape_last_mean']:.3f}."
    )


def _tokens(shape: Json) -> str:
    return (
        f"{shape['lookback']} tokens into the encoder, {shape['start']} + {shape['ahead']} into "
        "the decoder"
    )


def _decision(loop: Sequence[Json]) -> Iterator[str]:
    """What wins, in a sentence."""
    gains = {name: gain for name, gain in _gains(loop, _share).items() if name != TRUTH}
    runs = len({_id(row) for row in loop})
    ahead = [name for name, gain in gains.items() if gain.low is not None and gain.low > 0]
    best = max(gains, key=lambda name: gains[name].mean, default=SIMPLEST)
    if not ahead:
        yield (
            f"**No forecaster brings more goodput than `{SIMPLEST}` with an interval above 0** "
            f"({runs} runs of `migrator`; highest: `{best}`, {gains[best]})."
            if gains
            else "**Nothing was run yet.**"
        )
        return
    names = ", ".join(f"`{name}` {gains[name]}" for name in ahead)
    yield (
        f"**More goodput than `{SIMPLEST}`, with an interval above 0: {names}** ({runs} runs of "
        "`migrator`)."
    )


def _loops(record: Json) -> Iterator[str]:
    """A table per policy."""
    for planner, kind in PLANNERS.items():
        if record[kind]:
            yield from ("", f"### `{planner}`", "", *_loop(_complete(record[kind])))
            yield from _missing(record, kind)


def _complete(rows: Sequence[Json]) -> list[Json]:
    """The runs that all have, of the forecasters with at least half of the runs of the simplest."""
    named = {name: {_id(row) for row in theirs} for name, theirs in _by_name(rows).items()}
    least = len(named.get(SIMPLEST, ())) / 2
    named = {name: runs for name, runs in named.items() if len(runs) >= least}
    common = set.intersection(*named.values()) if named else set()
    return [row for row in rows if row["forecaster"] in named and _id(row) in common]


def _missing(record: Json, kind: str) -> Iterator[str]:
    """What was not run, or not by all."""
    shown, wanted = len(_complete(record[kind])), record["wanted"][kind]
    if shown < wanted:
        yield from ("", f"{wanted - shown} of {wanted} runs are missing or not run by all.")


def _loop(loop: Sequence[Json]) -> Iterator[str]:
    gains, shares = _gains(loop, _share), _by_name(loop)
    truth, simplest = (
        {_id(row): _share(row) for row in shares.get(name, ())} for name in (TRUTH, SIMPLEST)
    )
    lines = []
    for name, rows in shares.items():
        both = [row for row in rows if _id(row) in truth]
        of_truth = f"{mean(_share(row) / truth[_id(row)] for row in both):.1%}" if both else ""
        same = sum(_share(row) == simplest.get(_id(row)) for row in rows)
        lines.append(
            [
                f"`{name}`",
                f"{len(rows)}",
                f"{mean(map(_share, rows)):.1%}",
                f"{mean(row['in_time'] / row['received'] for row in rows):.1%}",
                f"{mean(row['worst'] for row in rows):.1%}",
                str(gains.get(name, "")),
                "" if name == SIMPLEST else f"{same}",
                of_truth,
            ]
        )
    heads = ["forecaster", "runs", "goodput", "in time", "worst tenant", "gain", "same"]
    yield from table([*heads, f"of `{TRUTH}`"], lines)


def _missing_errors(record: Json) -> Iterator[str]:
    shown, wanted = len(record["errors"]), record["wanted"]["errors"]
    if shown < wanted:
        yield from ("", f"{wanted - shown} of {wanted} are missing.")


def _amount(errors: Sequence[Json]) -> str:
    runs = {_id(row) for row in errors}
    places = {(one["kind"], one["begin_s"]) for row in errors for one in row["tenants"]}
    return f"{len(runs)} runs at {len(places)} places, a forecast per tenant and window."


def _errors(errors: Sequence[Json]) -> Iterator[str]:
    """WAPE by kind, and the loss against the simplest for steady and bursty arrivals."""
    kinds = [kind for both in KINDS for kind in both]
    lines = []
    for name, rows in _by_name(errors).items():
        tenants = [one for row in rows for one in row["tenants"]]
        cells = [_wape([one for one in tenants if one["kind"] == kind]) for kind in kinds]
        losses = [_loss_against(errors, name, both) for both in KINDS]
        lines.append([f"`{name}`", *cells, *losses])
    heads = ["forecaster", *(f"`{kind}`" for kind in kinds)]
    yield from table([*heads, "pinball, steady", "pinball, bursty"], lines)


def _wape(tenants: Sequence[Json]) -> str:
    came = sum(one["mean"] for one in tenants)
    return f"{sum(one['mae'] for one in tenants) / came:.3f}" if came else ""


def _loss_against(errors: Sequence[Json], name: str, kinds: Sequence[str]) -> str:
    if name == SIMPLEST:
        return ""
    rows = [
        {**row, "place": f"{one['kind']} {one['begin_s']}", "loss": one["loss"]}
        for row in errors
        for one in row["tenants"]
        if one["kind"] in kinds
    ]
    gain = _gains(rows, lambda row: float(row["loss"])).get(name)
    return "" if gain is None else str(gain)


def _gains(rows: Sequence[Json], value: Callable[[Json], float]) -> dict[str, Gain]:
    """Per forecaster its relative gain over the simplest, over places."""
    named = _by_name(rows)
    simplest = {_id(row): value(row) for row in named.get(SIMPLEST, ())}
    gains = {}
    for name, theirs in named.items():
        by_place: dict[str, list[float]] = {}
        for row in theirs:
            if simplest.get(_id(row)) and name != SIMPLEST:
                lead = value(row) / simplest[_id(row)] - 1
                by_place.setdefault(row["place"], []).append(lead)
        if by_place:
            gains[name] = Gain.over([mean(leads) for leads in by_place.values()])
    return gains


def _by_name(rows: Sequence[Json]) -> Mapping[str, list[Json]]:
    named: dict[str, list[Json]] = {}
    for row in rows:
        named.setdefault(row["forecaster"], []).append(row)
    return named


def _id(row: Json) -> RunId:
    return row["workload"], row["seed"]


def _share(row: Json) -> float:
    return float(row["goodput"] / row["received"])
