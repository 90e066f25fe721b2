"""The controller: turns plans and events into instructions. The simulator and the daemon share
it."""
