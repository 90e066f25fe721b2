"""Planning time with several retraining configurations against one:
`python -m benchmarks.configuration_times [--windows N] [--charge CHARGE] [--limit-s S]`.

Every window is planned with one and with four configurations in the same run, so that the machine
is the same. The four are the window's own, a half and a quarter of its length, and one and a half
of it, with 90%, 70% and 108% of its gain.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import replace

from benchmarks.problems import random_window
from migrator.core.problem import Charge, Plan, Problem, RetrainingConfiguration, Tenant
from migrator.planning.planners import ready
from migrator.planning.solve import make_plan

OTHERS = {"half": (0.5, 0.9), "quarter": (0.25, 0.7), "long": (1.5, 1.08)}
"""Name -> (its length, its gain) relative to the window's own configuration."""
NEAR = 0.01
"""Gaps up to this are counted."""


def main() -> int:
    """Plan the windows and print a row for each, then the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--windows", type=int, default=40)
    parser.add_argument("--tenants", type=int, default=2)
    parser.add_argument("--charge", type=Charge, default=Charge.SURVIVORS)
    parser.add_argument("--limit-s", type=float, help="default: 1%% of the window")
    options = parser.parse_args()
    ready(options.charge)
    ratios: list[float] = []
    near = {"one": 0, "four": 0}
    total_s = {"one": 0.0, "four": 0.0}
    for seed in range(options.windows):
        one = random_window(seed, tenants=options.tenants, charge=options.charge)
        four = replace(one, tenants=tuple(map(with_four, one.tenants)))
        seconds = {}
        plans = {}
        for name, problem in (("one", one), ("four", four)):
            plans[name], seconds[name] = timed(problem, options.limit_s)
            near[name] += plans[name].gap <= NEAR
            total_s[name] += seconds[name]
        ratios.append(seconds["four"] / seconds["one"])
        chosen = ", ".join(retraining.configuration for retraining in plans["four"].retrainings)
        print(
            f"window {seed}: {seconds['one']:.3f} s and {seconds['four']:.3f} s, "
            f"{plans['one'].status} and {plans['four'].status}, "
            f"goodput x {plans['four'].goodput / plans['one'].goodput:.3f} ({chosen})",
            flush=True,
        )
    print(
        f"four configurations against one: median {statistics.median(ratios):.2f}, all windows "
        f"{total_s['four'] / total_s['one']:.2f}, most {max(ratios):.2f} times the processor time; "
        f"within {NEAR:.0%}: {near['one']} and {near['four']} of {options.windows}"
    )
    return 0


def with_four(tenant: Tenant) -> Tenant:
    """The tenant with three further configurations."""
    (own,) = tenant.configurations
    gain = own.accuracy - tenant.accuracy_pre
    others = (
        RetrainingConfiguration(
            min(1.0, tenant.accuracy_pre + part * gain),
            {gpcs: max(1, round(length * slots)) for gpcs, slots in own.slots.items()},
            name,
        )
        for name, (length, part) in OTHERS.items()
    )
    return replace(tenant, configurations=(replace(own, name="own"), *others))


def timed(problem: Problem, limit_s: float | None) -> tuple[Plan, float]:
    """The plan and the processor time that it took."""
    began = time.process_time()
    plan = make_plan(problem, time_limit_s=limit_s, steady=True)
    return plan, time.process_time() - began


if __name__ == "__main__":
    sys.exit(main())
