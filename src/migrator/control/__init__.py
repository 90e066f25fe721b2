"""The controller: turns plans and events into instructions, for the simulator and the daemon."""
