"""One tree of errors. Each message is one sentence that says what is wrong and what to do next.

MigratorError
├── InputError          what the user gave is malformed; the CLI exits with 2
│   ├── InfeasibleError well formed, but some rule can never be met
│   └── NotWrittenError a file cannot be written, as on a full disk; nothing was changed
├── PlanError           a plan breaks a rule of its problem
├── SolverError         a solver could not give a plan (limit too small, no licence, ...)
└── GpuError            a GPU refused, or is not as wanted; the CLI exits with 3
"""


class MigratorError(Exception):
    """Anything MIGRator reports to its user."""


class InputError(MigratorError):
    """The input cannot be used as it is."""


class InfeasibleError(InputError):
    """No plan can satisfy the problem; the message names the rule."""


class NotWrittenError(InputError):
    """A file cannot be written, as on a full disk; it is as it was."""


class PlanError(MigratorError):
    """A plan breaks a rule of the problem it was made for."""


class SolverError(MigratorError):
    """A solver ended without a usable plan."""


class GpuError(MigratorError):
    """A GPU could not be changed as asked, or is not as it should be."""
