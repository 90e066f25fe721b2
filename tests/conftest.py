"""Lets tests import what they share as `support`; the same examples are drawn in every run.

A run that fails by chance tells the next committer nothing about their change. To search for
new examples: `HYPOTHESIS_PROFILE=explore make test`.
"""

import os
import sys
from pathlib import Path

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

sys.path.insert(0, str(Path(__file__).parent))
# at the end: benchmarks are scripts that find each other by plain names
sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))
