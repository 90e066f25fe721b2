"""An object in a child process, whose methods are called from synchronous code.

Calls and answers are pickled, one after the other, so an object may be of any class that both
processes can import; policies and profilers' workers use it. Both processes must trust each other.
`child_process` is for the event loop: typed messages, arrays without copies, many open requests.

Uses only the standard library, because profilers run on hosts that have nothing but torch.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread
from typing import Any

from migrator.core.errors import MigratorError
from migrator.io.spawn import ChildLostError, exit_status, exit_with_parent, one_line, spawn

_EXIT_S = 5.0
"""Limit in seconds for the exit of a process that has closed its connection."""
_SENT_S = 1.0
"""Limit in seconds for the end of the thread that sends, after the connection is closed."""
_OUTPUT_BYTES = 4096
"""The end of the output in which the last line is looked for."""


class CallFailedError(MigratorError):
    """The method raised an exception. The process continues."""

    def __init__(self, reason: str, types: frozenset[str] = frozenset()) -> None:
        """`types`: names of the classes of the exception and of its cause."""
        super().__init__(reason)
        self.types = types


class ObjectProcess:
    """A child process with one object."""

    def __init__(
        self,
        name: str,
        build: Callable[..., object],
        *arguments: object,
        environment: Mapping[str, str] = os.environ,
        keeps_output: bool = False,
        finishes_calls: bool = False,
    ) -> None:
        """`build` is called in the process with the arguments, and returns the object.

        `keeps_output`: what the process prints is kept for error messages, which have its last
        line, and appears nowhere else. `finishes_calls`: when this process is
        gone, the child finishes a call before it exits, for example because it uses a GPU.
        """
        self._name = name
        self._output = os.memfd_create("output") if keeps_output else None
        self._end, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = spawn(
                    ["migrator.io.object_process", str(theirs.fileno())],
                    environment,
                    output=self._output,
                    fds=[theirs.fileno()],
                )
            except BaseException:
                self._end.close()
                self._close_output()
                raise
        self._connection: Connection[Any, Any] = Connection(os.dup(self._end.fileno()))
        # a long call fills the socket while the process starts or is busy, so a thread sends it
        self._outbox: SimpleQueue[bytes | None] = SimpleQueue()
        self._outbox.put(pickle.dumps((list(sys.path), finishes_calls)))
        self._outbox.put(pickle.dumps((build, arguments)))
        self._sending = Thread(target=self._send, daemon=True)
        self._sending.start()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def call(self, method: str, *arguments: object) -> None:
        """Send a call, without waiting; `answer` returns its result."""
        self._outbox.put(pickle.dumps((method, arguments)))

    def has_answer(self, timeout_s: float = 0.0) -> bool:
        """Whether an answer, or the end of the process, arrives in time."""
        return self._connection.poll(timeout_s)

    def answer(self, timeout_s: float) -> Any:
        """The result of the oldest call that has not been answered.

        Raises ChildLostError if there is none in time, or CallFailedError.
        """
        try:
            if not self.has_answer(timeout_s):
                raise ChildLostError(f"{self._name} did not answer within {timeout_s:g} s")
            content = self._connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise ChildLostError(self._describe_exit()) from error
        try:
            result, failure = pickle.loads(content)
        except Exception as error:  # the classes' own code, which may raise anything
            raise CallFailedError(f"its answer cannot be read ({one_line(error)})") from error
        if failure is not None:
            reason, types, trace = failure
            failed = CallFailedError(reason, types)
            failed.add_note(trace)
            raise failed
        return result

    def hang_up(self) -> None:
        """Close the connection, which makes the process exit."""
        self._outbox.put(None)
        with suppress(OSError):  # ends a write that waits for the process, too
            self._end.shutdown(socket.SHUT_RDWR)
        self._sending.join(_SENT_S)
        self._end.close()
        self._connection.close()

    def end(self, limit_s: float) -> None:
        """Hang up, and wait for the exit of the process; kill it after the limit."""
        self.hang_up()
        try:
            self._process.wait(limit_s)
            self._close_output()
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        self._process.kill()
        self.hang_up()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_S)
        self._close_output()

    def _close_output(self) -> None:
        if self._output is not None:
            os.close(self._output)
            self._output = None

    def _send(self) -> None:
        with suppress(OSError):  # the process is gone; `answer` reports it
            for content in iter(self._outbox.get, None):
                self._connection.send_bytes(content)

    def _describe_exit(self) -> str:
        try:
            what = exit_status(self._process.wait(_EXIT_S))
        except subprocess.TimeoutExpired:
            what = "closed its connection"
        lines: list[str] = []
        if self._output is not None:
            size = os.fstat(self._output).st_size
            end = os.pread(self._output, _OUTPUT_BYTES, max(0, size - _OUTPUT_BYTES))
            lines = end.decode(errors="replace").strip().splitlines()
        return f"{self._name} {what}{f': {lines[-1][:300]}' if lines else ''}"


def main() -> None:
    """Build the object and answer calls until the parent has closed the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    connection: Connection[Any, Any] = Connection(int(sys.argv[1]))
    with suppress(EOFError, ConnectionError):
        sys.path[:], finishes_calls = pickle.loads(connection.recv_bytes())
        with nullcontext() if finishes_calls else exit_with_parent(connection.fileno()):
            _answer_calls(connection)
    sys.stdout.flush()
    os._exit(0)  # the interpreter's own end takes torch apart


def _answer_calls(connection: Connection[Any, Any]) -> None:
    build, arguments = pickle.loads(connection.recv_bytes())
    instance = build(*arguments)
    while True:
        content = connection.recv_bytes()
        try:
            method, arguments = pickle.loads(content)
            answer = pickle.dumps((getattr(instance, method)(*arguments), None))
        except Exception as error:  # whatever it is, the next call may succeed
            answer = pickle.dumps((None, _failure(error)))
        connection.send_bytes(answer)


def _failure(error: Exception) -> tuple[str, frozenset[str], str]:
    """Reason, names of classes and traceback: the parent may not have the exception's class."""
    classes = (*type(error).__mro__, *type(error.__cause__).__mro__)
    trace = "".join(traceback.format_exception(error))
    reason = str(error) if isinstance(error, MigratorError) else one_line(error)
    return reason, frozenset(kind.__name__ for kind in classes), trace


if __name__ == "__main__":
    main()
