"""The command line: `migrator VERB`. Parse, call, print; everything else lives below."""

from migrator.cli import (
    example_verb,
    forecast_verbs,
    gpu_change_verbs,
    gpu_verbs,
    learn_verbs,
    live_verbs,
    load_verb,
    plan_verbs,
    profile_verb,
    reproduce_verb,
    serve_verb,
    simulate_verbs,
)
from migrator.cli.app import app, main

__all__ = [
    "app",
    "example_verb",
    "forecast_verbs",
    "gpu_change_verbs",
    "gpu_verbs",
    "learn_verbs",
    "live_verbs",
    "load_verb",
    "main",
    "plan_verbs",
    "profile_verb",
    "reproduce_verb",
    "serve_verb",
    "simulate_verbs",
]
