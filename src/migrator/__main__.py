"""The command `migrator`, also as `python -m migrator`."""

import signal
from importlib import import_module


def main() -> None:
    """Run the command line. While it is imported, Ctrl-C ends the process without a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    import_module("migrator.cli").main()


if __name__ == "__main__":  # worker processes import this file too
    main()
