"""The command line: `migrator VERB`. Parse, call, print; everything else lives below."""

from migrator.cli import (
    admin_verbs,
    cluster_verbs,
    dashboard_verb,
    example_verb,
    forecast_verbs,
    gateway_verb,
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
    top_verb,
)
from migrator.cli.app import app, main

__all__ = [
    "admin_verbs",
    "app",
    "cluster_verbs",
    "dashboard_verb",
    "example_verb",
    "forecast_verbs",
    "gateway_verb",
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
    "top_verb",
]
