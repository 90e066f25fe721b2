"""A policy that decides in a separate process.

The daemon sends a question and continues; it polls for the answer. Until then the previous decision
stays in force. A late answer loses its first slots, an answer for a window that has ended is
dropped, and a process that dies or exceeds the time limit is replaced. Asking and answering never
block and never raise. The process exits when its parent does.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from threading import Thread

from migrator.control.planning_loop import REHEARSAL, rest_of
from migrator.core.errors import PolicyError
from migrator.policies.policy import Decision, Observation, Policy
from migrator.policies.registry import policy

PATIENCE_S = 60.0
"""Seconds after which a process is given up, because its answer would be useless."""
REHEARSED_S = 600.0
"""Seconds that the rehearsal may take: it imports and, once per machine, compiles everything."""
_GRACE_S = 0.5
_LOOK_S = 0.5
"""Seconds between two checks of the parent process."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Question:
    window: int
    slot: int
    asked_s: float


@dataclass(frozen=True)
class _Thinker:
    """The process and our end of the pipe."""

    process: SpawnProcess
    line: Connection


class PolicyProcess:
    """One policy, asked from the serving path and answering from another process."""

    def __init__(
        self,
        name: str | Policy,
        patience_s: float = PATIENCE_S,
        report: Callable[[str], None] = _log.warning,
    ) -> None:
        """`name`: name of a policy, or a policy that can be pickled.

        `report`: called with the reason if there is no answer.
        """
        self._policy = policy(name) if isinstance(name, str) else name
        self._patience_s, self._report = patience_s, report
        self._thinker: _Thinker | None = None
        self._asked: _Question | None = None
        self._sending: Thread | None = None
        self.unused: Counter[str] = Counter()
        """Counts of questions without a usable answer: "dropped" answers came after their window,
        "lost" questions failed, died or took too long."""

    def __enter__(self) -> PolicyProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def busy(self) -> bool:
        """Whether an answer is pending."""
        if self._asked is None or self._thinker is None or self._thinker.line.poll():
            return False
        if not self._thinker.process.is_alive():
            return False
        patience_s = REHEARSED_S if self.rehearsing else self._patience_s
        return time.monotonic() - self._asked.asked_s < patience_s

    @property
    def rehearsing(self) -> bool:
        """Whether the last question was the rehearsal."""
        return self._asked is not None and self._asked.window == REHEARSAL

    def ask(self, window: int, observation: Observation) -> bool:
        """Ask for a decision on the observation. Returns False if busy; ask again later."""
        if self.busy:
            return False
        if self._asked is not None:
            self.answer(window, observation.slot)  # discards a stale answer
        if self._thinker is None:
            self._thinker = _started(self._policy)
        self._asked = _Question(window, observation.slot, time.monotonic())
        # a long history fills the pipe while the process starts, so a thread sends it
        line = self._thinker.line
        self._sending = Thread(target=_send, args=(line, observation), daemon=True)
        self._sending.start()
        return True

    def answer(self, window: int, slot: int) -> Decision | None:
        """The decision from `slot` of `window` on; None if there is nothing new."""
        if self._asked is None or self._thinker is None or self.busy:
            return None
        asked, self._asked = self._asked, None
        said = self._said(self._thinker)
        if said is None or asked.window == REHEARSAL:
            return None
        if not isinstance(said, Decision):
            self.unused["lost"] += 1
            self._report(f"{self._policy.name} could not decide: {said}")
            return None
        if asked.window != window:
            self.unused["dropped"] += 1
            self._report(
                f"a decision of {self._policy.name} came after its window was over and is dropped"
            )
            return None
        return rest_of(said, slot - asked.slot)

    def _said(self, thinker: _Thinker) -> Decision | str | None:
        """The answer, or an error message; None if the process was given up."""
        if not thinker.line.poll():
            self._give_up("thinks for too long" if thinker.process.is_alive() else "died")
            return None
        try:
            said: object = thinker.line.recv()
        except (EOFError, OSError):
            self._give_up("died")
            return None
        except Exception as error:  # unpickling data of another process may raise anything
            return f"its answer cannot be read ({type(error).__name__}: {error})"
        return said if isinstance(said, Decision | str) else f"it answered {type(said).__name__}"

    def close(self) -> None:
        """Kill the process."""
        thinker, self._thinker, self._asked = self._thinker, None, None
        if thinker is None:
            return
        thinker.process.kill()  # it has nothing to save, and closing must not block
        thinker.process.join(_GRACE_S)
        if self._sending is not None:  # ended by the broken pipe; it must not use a closed pipe
            self._sending.join(_GRACE_S)
        thinker.line.close()

    def _give_up(self, why: str) -> None:
        self.unused["lost"] += 1
        self._report(f"{self._policy.name} {why} and is started again")
        self.close()


def _started(asked: Policy) -> _Thinker:
    # spawn: a fork of a process with threads or a GPU context may hang
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_think, args=(asked, theirs), daemon=True)
    process.start()
    theirs.close()
    return _Thinker(process, ours)


def _think(asked: Policy, line: Connection) -> None:
    """Answer questions until the parent closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent process
    Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    while True:
        try:
            observation: Observation = line.recv()
        except (EOFError, OSError):  # OSError: the pipe was closed in the middle of a message
            return
        try:
            said: Decision | str = asked.decide(observation)
        except PolicyError as error:
            said = error.reason
        except Exception as error:  # whatever it is, the next question may succeed
            said = f"{type(error).__name__}: {error}"
        try:
            line.send(said)
        except OSError:
            return


def _end_with(parent: int) -> None:
    """Exit when the parent process has exited, even in the middle of a question."""
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os._exit(1)


def _send(line: Connection, observation: Observation) -> None:
    try:
        line.send(observation)
    except OSError:
        _log.debug("the process that was asked is gone; who waits for its answer will see")
