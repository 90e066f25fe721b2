"""The command line: `migrator VERB`. Verbs parse, call the other packages and print."""

from migrator.cli import (
    admin_verbs,
    cluster_verbs,
    compare_verb,
    dashboard_verb,
    forecast_verbs,
    gpu_change_verbs,
    gpu_verbs,
    learn_verbs,
    live_verbs,
    load_verb,
    plan_verbs,
    profile_verb,
    reproduce_verb,
    serve_verbs,
    simulate_verbs,
    top_verb,
)
from migrator.cli.app import app, main

__all__ = [
    "admin_verbs",
    "app",
    "cluster_verbs",
    "compare_verb",
    "dashboard_verb",
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
    "serve_verbs",
    "simulate_verbs",
    "top_verb",
]
