"""`migrator.profiling.whole_gpu` on a fake NVML, the CPU computing: FOLDER ARGUMENTS..."""

from __future__ import annotations

import sys
from pathlib import Path

from support.fake_nvml.library import installed

from migrator.profiling.drivers import Mig
from migrator.profiling.whole_gpu import main

if __name__ == "__main__":
    Mig.device = "cpu"
    with installed(Path(sys.argv[1])):
        sys.exit(main(sys.argv[2:]))
