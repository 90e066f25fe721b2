"""The pages of the evaluation, from the rows that benchmarks.headline keeps."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import mean, stdev
from typing import Any

import numpy as np

from benchmarks.headline_runs import (
    ALIKE,
    BASE,
    INSTANCE_POLICIES,
    LOADS,
    ORACLE_POLICIES,
    POLICIES,
    STEPS,
    VARIED,
    VARIED_POLICIES,
    Part,
)
from benchmarks.headline_scenarios import (
    LENDING,
    OWN_SLICES,
    SHARES,
    Condition,
    chosen,
)
from benchmarks.runs import table
from migrator.advise.leads import STATIC
from migrator.core.comparison import t95
from migrator.reproduce.goodput import OURS, REPORTED
from migrator.workload.workloads import WINDOW_S, published_workloads

Json = dict[str, Any]
FEWEST_PLACES, DRAWS = 10, 10_000
"""Places from which on an interval is a bootstrap, and its draws."""
RunId = tuple[str, int]
"""Workload and seed."""
_STEP_NAMES = (
    *("even split", "+ plan (paper's charge)", "+ pre-initialization", "+ survivors"),
    *("+ optional retraining", "+ replanning"),
)
_CLAIMED = {"both steady, load 0.8": "99%", "both bursty, load 0.8": "95%"}
"""Of the goodput of the oracle."""
_CLAIM_CONDITIONS = (
    *((replace(BASE, load=load), f"{load:g}") for load in LOADS),
    (replace(BASE, whole=False), "0.8, cut data"),
)
_CLAIMS_ABOUT = (
    "*At least the claim*: yes if the whole interval is above it, no if it is below. The even "
    "split retrains beside serving and never changes: what it is ahead of a peer comes from MIG."
)
_EKYAS = ("ekya", "ekya-by-requests")
_ABOUT = (
    "Settings and 95% intervals (in brackets): [evaluation protocol](../evaluation-protocol.md). "
    "Gains are relative, of the same workload, place and seed."
)
_WEIGHTS = (
    "All models but EfficientNet-Lite (P1 to P4) and BERT-base begin with random weights: their "
    "published weights could not be had. Accuracies were measured with cut data, durations are "
    "those of the whole data sets unless a table says otherwise."
)


@dataclass(frozen=True)
class Gain:
    """A mean relative gain with its 95% interval."""

    mean: float
    low: float | None
    """None with a single place."""
    high: float | None

    @classmethod
    def over(cls, gains: Sequence[float]) -> Gain:
        """That of gains by place."""
        middle, count = mean(gains), len(gains)
        if count == 1:
            return cls(middle, None, None)
        if count < FEWEST_PLACES:
            half = t95(count - 1) * stdev(gains) / math.sqrt(count)
            return cls(middle, middle - half, middle + half)
        drawn = np.random.default_rng(0).integers(0, count, (DRAWS, count))
        means = np.asarray(gains)[drawn].mean(axis=1)
        low, high = np.quantile(means, (0.025, 0.975)).tolist()
        return cls(middle, low, high)

    @property
    def ratio(self) -> str:
        """As the part of what it is relative to, in percent."""
        if self.low is None or self.high is None:
            return f"{1 + self.mean:.1%}"
        return f"{1 + self.mean:.1%} ({100 + 100 * self.low:.1f} to {100 + 100 * self.high:.1f})"

    def __str__(self) -> str:
        """In percent."""
        if self.low is None or self.high is None:
            return f"{self.mean:+.1%}"
        return f"{self.mean:+.1%} ({100 * self.low:+.1f} to {100 * self.high:+.1f})"


@dataclass(frozen=True)
class Rows:
    """The rows of a part."""

    rows: Sequence[Json]

    def of(self, policy: str, condition: Condition) -> dict[RunId, Json]:
        """The runs of a policy under a condition."""
        changed = json.loads(json.dumps(condition.seen_by(chosen(policy)).changed))
        return {
            (row["workload"], row["seed"]): row
            for row in self.rows
            if row["policy"] == policy and row["changed"] == changed
        }

    def only(self, wanted: Callable[[Json], bool]) -> Rows:
        """Some of the rows."""
        return Rows([row for row in self.rows if wanted(row)])

    def gain(self, ours: tuple[str, Condition], theirs: tuple[str, Condition]) -> Gain | None:
        """The relative gain in goodput over the runs that both have; None without any."""
        one, other = self.of(*ours), self.of(*theirs)
        by_place: dict[str, list[float]] = {}
        for key, row in one.items():
            if key in other and other[key]["goodput"]:
                lead = _share(row) / _share(other[key]) - 1
                by_place.setdefault(row["place"], []).append(lead)
        return Gain.over([mean(leads) for leads in by_place.values()]) if by_place else None

    def goodput(self, policy: str, condition: Condition) -> str:
        """Its mean goodput in percent."""
        return _mean([_share(row) for row in self.of(policy, condition).values()])


def page(part: Part, record: Json) -> str:
    """The page of a part."""
    title, body = _PARTS[part]
    unfinished = record["wanted"] - len(record["rows"])
    lines = [
        f"# {title}",
        "",
        f"`{record['command']}`, code {record['code']}, commit {record['commit']}; traces "
        f"{record['traces']}; {record['windows']} windows of {WINDOW_S} s; seeds 0 to "
        f"{record['seeds'] - 1}"
        + (f"; **{unfinished} of {record['wanted']} runs are missing**." if unfinished else "."),
        "",
        _ABOUT,
        "",
        *body(Rows(record["rows"])),
        "",
    ]
    return "\n".join(lines)


def _headline(rows: Rows) -> Iterator[str]:
    yield _WEIGHTS
    yield from _claims(rows)
    for load in LOADS:
        yield from _policies(f"Load {load:g}", rows, replace(BASE, load=load))
    yield from _oracle(rows)
    published = rows.only(lambda row: row["workload"] in published_workloads())
    yield from _policies("Load 0.8, P1 to P4 alone (published weights)", published, BASE)
    papers = rows.only(lambda row: row["workload"] not in published_workloads())
    yield from _policies("Load 0.8, W1 to W16 alone", papers, BASE)
    cut = replace(BASE, whole=False)
    yield from _policies("Load 0.8, retrainings as short as the cut data gives", rows, cut)


def _claims(rows: Rows) -> Iterator[str]:
    """The paper's leads beside ours, and what an even split without a planner has of them."""
    asked = {name: (f"{claimed:+.0%}", claimed) for name, claimed in REPORTED.items()}
    asked[STATIC] = ("above 0", 0.0)
    lines = []
    for peer, (claim, least) in asked.items():
        for condition, title in _CLAIM_CONDITIONS:
            ours, even = (
                rows.gain((policy, condition), (peer, condition)) for policy in (OURS, "equal-mig")
            )
            if ours is not None and ours.low is not None and ours.high is not None:
                above = "yes" if ours.low > least else "no" if ours.high < least else "not shown"
                split = "" if even is None else str(even)
                lines.append([peer, claim, title, str(ours), above, split])
    if lines:
        heads = ["over", "claim", "load", "migrator", "at least the claim", "even split on MIG"]
        yield from ("", "## The claims", "", *table(heads, lines), "", _CLAIMS_ABOUT)


def _oracle(rows: Rows) -> Iterator[str]:
    """What knowing the future would add."""
    conditions = {
        **{f"both {arrivals}, load 0.8": condition for arrivals, condition in ALIKE.items()},
        **{f"one of each, load {load:g}": replace(BASE, load=load) for load in LOADS},
    }
    lines = [
        [traces, policy, f"{runs}", gain.ratio, _CLAIMED.get(traces, "")]
        for (traces, condition), policy in product(conditions.items(), ORACLE_POLICIES[:-1])
        for runs in [len(rows.of("oracle", condition))]
        for gain in [rows.gain((policy, condition), ("oracle", condition))]
        if gain is not None
    ]
    if lines:
        heads = ["traces", "policy", "runs", "goodput over that of the oracle", "claim"]
        yield from ("", "## As good as knowing the future", "", *table(heads, lines))


def _policies(title: str, rows: Rows, condition: Condition) -> Iterator[str]:
    """A row per policy."""
    lines = []
    for policy in POLICIES:
        runs = list(rows.of(policy, condition).values())
        if not runs:
            continue
        gain = rows.gain((OURS, condition), (policy, condition))
        lines.append(
            [
                policy,
                f"{len(runs)}",
                _mean([_share(row) for row in runs]),
                _mean([row["in_time"] / row["received"] for row in runs]),
                _mean([row["goodput"] / row["in_time"] for row in runs if row["in_time"]]),
                _mean([row["worst"] for row in runs]),
                f"{mean(row['jain'] for row in runs):.3f}",
                "" if policy == OURS or gain is None else str(gain),
                f"{REPORTED[policy]:+.0%}" if policy in REPORTED else "",
            ]
        )
    if not lines:
        return
    lines.sort(key=lambda line: -float(line[2].rstrip("%")))
    heads = ["policy", "runs", "goodput", "in time", "accuracy of these", "worst tenant"]
    heads += ["Jain's index", "migrator's gain", "the paper's"]
    yield from ("", f"## {title}", "", *table(heads, lines))


def _ablation(rows: Rows) -> Iterator[str]:
    shares, several = replace(BASE, board=SHARES), replace(BASE, configurations=True)
    steps = [(name, (policy, BASE)) for name, policy in zip(_STEP_NAMES, STEPS, strict=True)]
    lines = []
    for number, (name, step) in enumerate(steps):
        before = steps[number - 1][1] if number else None
        lines.append(_step(rows, name, step, before))
    own, lent = (f"{OURS}{OWN_SLICES}", shares), (f"{OURS}{LENDING}", shares)
    lines.append(_step(rows, "the same on MPS shares", own, None))
    lines.append(_step(rows, "+ lending (on MPS shares)", lent, own))
    lines.append(_step(rows, "+ configurations (on MIG)", (OURS, several), (OURS, BASE)))
    yield (
        "Load 0.8. *Gain*: over the line before; that of lending over the same policy on MPS "
        "shares, that of configurations over replanning. A slice can be lent on MPS shares only, "
        "which have interference and eight slices instead of seven."
    )
    yield from ("", *table(["step", "policy", "runs", "goodput", "gain"], lines))
    yield from ("", "## What the same gives to others", "")
    others = []
    for policy in (OURS, *INSTANCE_POLICIES, *_EKYAS):
        lending = rows.gain((f"{policy}{LENDING}", shares), (f"{policy}{OWN_SLICES}", shares))
        choosing = rows.gain((policy, several), (policy, BASE))
        ahead = rows.gain((OURS, BASE), (policy, BASE))
        ahead_lent = rows.gain((f"{OURS}{LENDING}", shares), (f"{policy}{LENDING}", shares))
        ahead_several = rows.gain((OURS, several), (policy, several))
        gains = (lending, choosing, *((ahead, ahead_lent, ahead_several) if policy != OURS else ()))
        others.append([policy, *("" if one is None else str(one) for one in gains)])
    heads = ["policy", "gains by lending", "by configurations", "migrator's lead"]
    full = [[*line, *[""] * (6 - len(line))] for line in others]
    yield from table([*heads, "both with lending", "both with configurations"], full)


def _step(
    rows: Rows, name: str, step: tuple[str, Condition], before: tuple[str, Condition] | None
) -> list[str]:
    gain = None if before is None else rows.gain(step, before)
    shown = "" if gain is None else str(gain)
    return [name, f"`{step[0]}`", f"{len(rows.of(*step))}", rows.goodput(*step), shown]


def _sensitivity(rows: Rows) -> Iterator[str]:
    names = list(dict.fromkeys(row["workload"] for row in rows.rows))
    rivals = [policy for policy in VARIED_POLICIES if policy != OURS]
    yield (
        f"Workloads: {', '.join(names)}; load 0.8. One condition at a time; `migrator`'s goodput "
        "and its leads. What a policy does not notice (interference on MIG instances, forecasts "
        "without a plan) is not run again."
    )
    lines = [_leads(rows, "**as in the protocol**", "", BASE, rivals)]
    for what, values in VARIED.items():
        lines += [_leads(rows, what, value, one, rivals) for value, one in values.items()]
    heads = ["varied", "value", "migrator", *(f"over {rival}" for rival in rivals)]
    yield from ("", *table(heads, lines))


def _leads(
    rows: Rows, what: str, value: str, condition: Condition, rivals: Sequence[str]
) -> list[str]:
    leads = (rows.gain((OURS, condition), (rival, condition)) for rival in rivals)
    cells = ("" if lead is None else str(lead) for lead in leads)
    return [what, value, rows.goodput(OURS, condition), *cells]


_PARTS: dict[Part, tuple[str, Callable[[Rows], Iterator[str]]]] = {
    Part.HEADLINE: ("All policies under one protocol", _headline),
    Part.ABLATION: ("What each part of MIGRator adds", _ablation),
    Part.SENSITIVITY: ("How the leads depend on what was assumed", _sensitivity),
}


def _share(row: Json) -> float:
    return float(row["goodput"] / row["received"]) if row["received"] else 0.0


def _mean(shares: Sequence[float]) -> str:
    return f"{mean(shares):.1%}" if shares else ""
