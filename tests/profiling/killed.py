"""A driver at work until it is killed: `python -m profiling.killed mig 14 FOLDER`.

FOLDER is that of a fake NVML; none without it.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path

from support.fake_nvml.library import installed

from migrator.profiling.drivers import driver

if __name__ == "__main__":
    name, sms, *folders = sys.argv[1:]
    with ExitStack() as stack:
        for folder in folders:
            stack.enter_context(installed(Path(folder)))
        opened = driver(name, 0, None)
        stack.enter_context(opened.open())
        stack.enter_context(opened.share(int(sms)))
        print("at work", flush=True)
        time.sleep(60)
