"""The live system: the daemon and what it keeps, starts and writes down."""
