"""The oracle: MIGRator's planner on the arrivals that will really come, a ceiling for the others.

Not a bound: the planner's model is fluid, and it plans one window at a time.
"""

from __future__ import annotations

from migrator.core.problem import Charge
from migrator.policies.migrator import Migrator
from migrator.policies.policy import Sight

POLICIES = (
    Migrator(
        "oracle",
        "migrator that knows the arrivals to come",
        Sight.TRUTH,
        Charge.SURVIVORS,
    ),
)
