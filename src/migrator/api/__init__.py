"""The Python interface: `migrator.plan`, `simulate`, `compare`, `serve` and `policy`.

Each does what the verb of the same name does, takes files or values, and returns a result that a
notebook can show. What they need is imported when they are called.
"""

from migrator.api.functions import compare, plan, policy, simulate
from migrator.api.results import Comparison, PlanResult, RunResult
from migrator.api.server import Server, serve

__all__ = [
    "Comparison",
    "PlanResult",
    "RunResult",
    "Server",
    "compare",
    "plan",
    "policy",
    "serve",
    "simulate",
]
