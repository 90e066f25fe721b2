"""A disk that is full on demand: real ENOSPC from a small library beneath a process."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("full_disk.c")


class FullDisk:
    """The library, and the file that says below which path the disk is full."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("there is no C compiler to make a full disk with")
        self._flag, self.library = folder / "full-below", folder / "full_disk.so"
        flag = f'-DFLAG="{self._flag}"'
        command = [compiler, "-shared", "-fPIC", flag, "-o", str(self.library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True, capture_output=True)

    @contextmanager
    def below(self, path: Path) -> Iterator[None]:
        """Inside, nothing can be written to files whose path begins so."""
        ready = self._flag.with_suffix(".new")
        ready.write_text(str(path), encoding="utf-8")
        ready.replace(self._flag)
        try:
            yield
        finally:
            self.empty()

    def empty(self) -> None:
        """From now on there is room again."""
        self._flag.unlink(missing_ok=True)
