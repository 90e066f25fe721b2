"""One tree of errors. Each message is one sentence that says what is wrong and what to do next.

MigratorError
├── InputError          what the user gave is malformed; the CLI exits with 2
│   └── InfeasibleError well formed, but some rule can never be met
├── PlanError           a plan breaks a rule of its problem
└── SolverError         a solver could not give a plan (limit too small, no licence, ...)
"""


class MigratorError(Exception):
    """Anything MIGRator reports to its user."""


class InputError(MigratorError):
    """The input cannot be used as it is."""


class InfeasibleError(InputError):
    """No plan can satisfy the problem; the message names the rule."""


class PlanError(MigratorError):
    """A plan breaks a rule of the problem it was made for."""


class SolverError(MigratorError):
    """A solver ended without a usable plan."""
