"""The exact planner: prices for a bound, label search for the proof (`paper` charge)."""
