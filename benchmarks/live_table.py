"""The table of a live comparison on docs/results/live.md, from the rows of its live.json."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

OURS = "migrator"
ALL = "all"
"""Rows that are no tenant's."""
NAMES = {"benchmarks.gpu.lending:EqualMig": "`equal-mig`, lending as `migrator` does"}


def table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A line per policy, that with most goodput first."""
    tenants = list(dict.fromkeys(row["tenant"] for row in rows if row["tenant"] != ALL))
    heads = ("policy", "goodput", *tenants, "in time", "`migrator` ahead")
    heads += ("simulated ahead of the run", "simulated again")
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    whole = {row["policy"]: row for row in rows if row["tenant"] == ALL}
    for policy, row in sorted(whole.items(), key=lambda item: -item[1]["goodput"]):
        own = {other["tenant"]: other for other in rows if other["policy"] == policy}
        lead = whole[OURS]["goodput"] / row["goodput"] - 1
        cells = [NAMES.get(policy, f"`{policy}`"), f"{row['goodput'] / row['sent']:.1%}"]
        cells += [f"{own[name]['goodput'] / own[name]['sent']:.1%}" for name in tenants]
        cells += [f"{row['in_time'] / row['sent']:.1%}", "" if policy == OURS else f"{lead:+.1%}"]
        cells += [f"{row[when] / row['goodput'] - 1:+.1%}" for when in ("ahead", "again")]
        yield f"| {' | '.join(cells)} |"
