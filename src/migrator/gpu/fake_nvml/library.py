"""The fake library, which replaces `pynvml.nvmlLib` while it is installed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pynvml

from migrator.gpu.fake_nvml import device_calls, instance_calls
from migrator.gpu.fake_nvml.calls import CALLS
from migrator.gpu.fake_nvml.faults import struck
from migrator.gpu.fake_nvml.state import Store

DEFINED_IN = (device_calls, instance_calls)
"""Modules imported to register their functions."""


class FakeLibrary:
    """Functions by name, as ctypes finds them in libnvidia-ml.so.1."""

    def __init__(self, store: Store, before: Callable[[str], None] | None = None) -> None:
        self._store = store
        self._before = before
        self._opened = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        special: dict[str, Callable[..., Any]] = {
            "nvmlInitWithFlags": self._init,
            "nvmlShutdown": self._shutdown,
            "nvmlErrorString": _error_string,
        }
        if name not in CALLS and name not in special:
            raise AttributeError(name)

        # A closure instead of a bound method, because the binding sets attributes such as restype
        # on it.
        def function(*arguments: Any) -> Any:
            if name in special:
                return special[name](*arguments)
            return self._called(name, arguments)

        return function

    def _init(self, _flags: Any) -> int:
        code = struck(self._store, self._store.now(), "nvmlInitWithFlags").code
        if not code:
            self._opened += 1
        return code

    def _shutdown(self) -> int:
        if not self._opened:
            return int(pynvml.NVML_ERROR_UNINITIALIZED)
        self._opened -= 1
        return int(pynvml.NVML_SUCCESS)

    def _called(self, name: str, arguments: tuple[Any, ...]) -> int:
        if not self._opened:
            return int(pynvml.NVML_ERROR_UNINITIALIZED)
        if self._before is not None:
            self._before(name)
        state = self._store.now()
        fault = struck(self._store, state, name)
        if fault.seconds:
            time.sleep(fault.seconds)  # without the lock, so that other processes continue
        if fault.code:
            return fault.code
        call = CALLS[name]
        if not call.changes:
            return call.run(self._store.now() if fault.seconds else state, *arguments)
        with self._store.changing() as changed:
            return call.run(changed, *arguments)


def _error_string(code: Any) -> bytes:
    value = int(getattr(code, "value", code))
    for name in dir(pynvml):
        if name.startswith("NVML_ERROR_") and getattr(pynvml, name) == value:
            words = name.removeprefix("NVML_ERROR_").replace("_", " ")
            return words.capitalize().encode()
    return b"Unknown Error"
