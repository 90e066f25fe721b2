"""Stops the build on a Python that is too old.

Older versions of pip, such as 23.0, read `requires-python` after the dependencies; with extras they
then try older versions of every dependency, for minutes.
"""

import platform
import sys
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface
from packaging.specifiers import SpecifierSet


class OldPythonHook(MetadataHookInterface):
    """Runs before pip looks at any dependency."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Leave the metadata as it is; exit with one sentence if Python is too old."""
        needed, running = metadata["requires-python"], platform.python_version()
        if not SpecifierSet(needed).contains(running, prereleases=True):
            sys.exit(f"migrator needs Python {needed}; this is Python {running}")
