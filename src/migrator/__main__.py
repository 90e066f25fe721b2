"""`python -m migrator`."""

from migrator.cli import main

main()
