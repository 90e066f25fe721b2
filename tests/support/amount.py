"""How much random tests try: `HYPOTHESIS_PROFILE=explore` asks for all of it, with new examples."""

from __future__ import annotations

import os

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "explore"


def amount(usual: int, thorough: int) -> int:
    """Examples, seeds or operations of a test."""
    return thorough if THOROUGH else usual
