"""A policy that decides beside the serving path, in a process of its own.

Whoever serves asks and goes on; the answer is taken when it is there. Until then what was decided
before holds. An answer that comes late has its first slots cut off, one for a window that is
over is dropped, and a process that dies or thinks for too long is replaced: asking and answering
never wait and never raise. The process ends with whoever asked, however that one ended.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from threading import Thread

from migrator.policies.policy import Decision, Observation, Policy
from migrator.policies.registry import policy

PATIENCE_S = 60.0
"""A process that thinks for longer is given up: what it would say is of no use any more."""
REHEARSAL, REHEARSED_S = -1, 600.0
"""The window of a question whose answer nobody needs, and how long that may take: on the way
everything is imported and, once on a machine, compiled; given up, it would begin all over."""
_GRACE_S = 0.5
_LOOK_S = 0.5
"""Between two looks at whether who asks is still there."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Question:
    window: int
    slot: int
    asked_s: float


@dataclass(frozen=True)
class _Thinker:
    """The process, and our end of the line to it."""

    process: SpawnProcess
    line: Connection


class Aside:
    """One policy, asked from the serving path and answering from another process."""

    def __init__(
        self,
        name: str | Policy,
        patience_s: float = PATIENCE_S,
        told: Callable[[str], None] = _log.warning,
    ) -> None:
        """By name, or one that can be pickled; `told`: why there is no answer."""
        self._policy = policy(name) if isinstance(name, str) else name
        self._patience_s, self._told = patience_s, told
        self._thinker: _Thinker | None = None
        self._asked: _Question | None = None
        self._sending: Thread | None = None
        self.unused: Counter[str] = Counter()
        """Questions without an answer that could be used: "dropped" came after their window,
        "lost" ones failed, died or took too long."""

    def __enter__(self) -> Aside:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def busy(self) -> bool:
        """Whether it still thinks about what it was asked."""
        if self._asked is None or self._thinker is None or self._thinker.line.poll():
            return False
        if not self._thinker.process.is_alive():
            return False
        patience_s = REHEARSED_S if self.rehearsing else self._patience_s
        return time.monotonic() - self._asked.asked_s < patience_s

    @property
    def rehearsing(self) -> bool:
        """Whether what it was asked last is the rehearsal."""
        return self._asked is not None and self._asked.window == REHEARSAL

    def ask(self, window: int, observation: Observation) -> bool:
        """Ask what to do from the observation on; False: it is busy, ask again later."""
        if self.busy:
            return False
        if self._asked is not None:
            self.answer(window, observation.slot)  # nobody took it, or there will be none
        if self._thinker is None:
            self._thinker = _started(self._policy)
        self._asked = _Question(window, observation.slot, time.monotonic())
        # a long history fills the line while the process still starts: let another thread wait
        line = self._thinker.line
        self._sending = Thread(target=_send, args=(line, observation), daemon=True)
        self._sending.start()
        return True

    def answer(self, window: int, slot: int) -> Decision | None:
        """What is decided from `slot` of `window` on; None: nothing new, what holds goes on."""
        if self._asked is None or self._thinker is None or self.busy:
            return None
        asked, self._asked = self._asked, None
        said = self._said(self._thinker)
        if said is None or asked.window == REHEARSAL:
            return None
        if not isinstance(said, Decision):
            self.unused["lost"] += 1
            self._told(f"{self._policy.name} could not decide: {said}")
            return None
        if asked.window != window:
            self.unused["dropped"] += 1
            self._told(
                f"a decision of {self._policy.name} came after its window was over and is dropped"
            )
            return None
        return _from(said, slot - asked.slot)

    def _said(self, thinker: _Thinker) -> Decision | str | None:
        """Its answer, or why there is none; None: the process is given up."""
        if not thinker.line.poll():
            self._give_up("thinks for too long" if thinker.process.is_alive() else "died")
            return None
        try:
            said: object = thinker.line.recv()
        except (EOFError, OSError):
            self._give_up("died")
            return None
        except Exception as error:  # what another process pickled may raise anything
            return f"its answer cannot be read ({type(error).__name__}: {error})"
        return said if isinstance(said, Decision | str) else f"it answered {type(said).__name__}"

    def close(self) -> None:
        """End the process, whatever it is at."""
        thinker, self._thinker, self._asked = self._thinker, None, None
        if thinker is None:
            return
        thinker.process.kill()  # it has nothing to save, and nobody may wait for it
        thinker.process.join(_GRACE_S)
        if self._sending is not None:  # ended by the broken pipe; it must not use a closed line
            self._sending.join(_GRACE_S)
        thinker.line.close()

    def _give_up(self, why: str) -> None:
        self.unused["lost"] += 1
        self._told(f"{self._policy.name} {why} and is started again")
        self.close()


def _started(asked: Policy) -> _Thinker:
    # spawned: a fork of a process with threads or a GPU context may hang
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_think, args=(asked, theirs), daemon=True)
    process.start()
    theirs.close()
    return _Thinker(process, ours)


def _think(asked: Policy, line: Connection) -> None:
    """The other process: answers until nobody is there to ask."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks
    Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    while True:
        try:
            observation: Observation = line.recv()
        except (EOFError, OSError):  # OSError: the other end was closed in the middle of a message
            return
        try:
            said: Decision | str = asked.decide(observation)
        except Exception as error:  # whatever it is, the next question may be easier
            said = f"{type(error).__name__}: {error}"
        try:
            line.send(said)
        except OSError:
            return


def _end_with(parent: int) -> None:
    """Whatever it thinks about: nobody asks any more once its parent is gone."""
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os._exit(1)


def _send(line: Connection, observation: Observation) -> None:
    try:
        line.send(observation)
    except OSError:
        _log.debug("the process that was asked is gone; who waits for its answer will see")


def _from(decision: Decision, late: int) -> Decision:
    """What is left of a decision so many slots later; its last slot goes on."""
    gone = min(max(0, late), len(decision.slots) - 1)
    return replace(decision, slots=decision.slots[gone:])
