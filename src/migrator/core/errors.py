"""One tree of errors. Each message is one sentence that says what is wrong and what to do next.

MigratorError
├── InputError          the user's input is malformed; the CLI exits with 2
│   ├── InfeasibleError well formed, but no plan can meet some rule
│   └── NotWrittenError a file cannot be written, as on a full disk; nothing was changed
├── PlanError           a plan breaks a rule of its problem
├── PolicyError         a policy raised an exception
├── SolverError         a solver could not give a plan (limit too small, no licence, ...)
├── GpuError            a GPU refused a change or is in an unexpected state; the CLI exits with 3
└── HttpError           a client's request is refused, with the status that it is answered with
"""


class MigratorError(Exception):
    """Base class of all errors that MIGRator reports to its user."""


class InputError(MigratorError):
    """The input cannot be used as it is."""


class InfeasibleError(InputError):
    """No plan can satisfy the problem; the message names the rule."""


class NotWrittenError(InputError):
    """A file cannot be written, as on a full disk; its content is unchanged."""


class PlanError(MigratorError):
    """A plan breaks a rule of its problem."""


class PolicyError(MigratorError):
    """A policy raised an exception, which is the cause of this one."""

    def __init__(self, policy: str, reason: str, own_traceback: str = "") -> None:
        """`own_traceback`: the policy's own frames, without those that called it."""
        super().__init__(policy, reason, own_traceback)
        self.policy, self.reason, self.own_traceback = policy, reason, own_traceback

    def __str__(self) -> str:
        return f"policy: {self.policy} failed with {self.reason}; correct it"


class PolicyWarning(UserWarning):
    """A decision of a policy that is valid and probably not what was meant."""


class SolverError(MigratorError):
    """A solver ended without a usable plan."""


class GpuError(MigratorError):
    """A GPU could not be changed as requested, or is not in the expected state."""


class HttpError(MigratorError):
    """The request is answered with this status; the message says what to do next."""

    def __init__(self, status: int, reason: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(reason)
        self.status, self.retry_after_s = status, retry_after_s
