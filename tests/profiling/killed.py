"""A driver at work until it is killed: `python -m profiling.killed mig 14`."""

from __future__ import annotations

import sys
import time

from migrator.profiling.drivers import driver

if __name__ == "__main__":
    found = driver(sys.argv[1], 0, None)
    with found.open(), found.share(int(sys.argv[2])):
        print("at work", flush=True)
        time.sleep(60)
