"""The fake put beneath `pynvml`, and taken away again without a trace."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pynvml

from migrator.gpu.fake_nvml.library import FakeLibrary
from migrator.gpu.fake_nvml.machine import FakeNvml
from migrator.gpu.mig import FAKE_NVML


@contextmanager
def installed(
    folder: Path,
    gpus: Sequence[str] | None = None,
    *,
    mig: bool = True,
    before: Callable[[str], None] | None = None,
) -> Iterator[FakeNvml]:
    """The fake machine of a folder beneath `pynvml`; `before` hears every call first."""
    fake = FakeNvml(folder, gpus, mig=mig)
    binding: Any = pynvml
    cached: dict[str, Any] = binding._nvmlGetFunctionPointer_cache
    library, functions = binding.nvmlLib, dict(cached)
    binding.nvmlLib = FakeLibrary(fake.store, before)
    cached.clear()
    try:
        yield fake
    finally:
        binding.nvmlLib = library
        cached.clear()
        cached.update(functions)


@contextmanager
def from_environment() -> Iterator[FakeNvml | None]:
    """The fake that MIGRATOR_FAKE_NVML names, beneath `pynvml`; None where it names none."""
    named = os.environ.get(FAKE_NVML)
    if not named:
        yield None
        return
    folder, _, boards = named.partition(":")
    with installed(Path(folder), boards.split(",") if boards else None) as fake:
        yield fake
