"""What tests of several modules share: small random problems and a brute force to solve them."""

import os
from pathlib import Path

PYTHONPATH = os.pathsep.join(str(Path(__file__).parents[2] / folder) for folder in ("src", "tests"))
"""Of processes: the code of this checkout, whatever is installed, and the tests' models."""
