"""The live system: the daemon and its services, files and processes."""
