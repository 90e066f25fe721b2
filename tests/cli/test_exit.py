"""What happens when a verb has ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support import PYTHONPATH

MODULE = '''\
import os


class Resource:
    """As a compiled library that checks at exit whether all of its objects are freed."""

    def __init__(self):
        self.itself = self

    def __del__(self, write=os.write):
        write(2, b"freed")


RESOURCE = Resource()


def nothing(observation):
    """Hold nothing."""
    return {}
'''


def test_objects_of_libraries_are_freed_at_exit(tmp_path: Path) -> None:
    (tmp_path / "my_policy.py").write_text(MODULE, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "migrator", "policies", "my_policy:nothing"],
        env={**os.environ, "PYTHONPATH": f"{PYTHONPATH}{os.pathsep}{tmp_path}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == "freed"
