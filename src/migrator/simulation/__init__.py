"""The request-level simulator: a scenario and a policy in, an outcome out."""
