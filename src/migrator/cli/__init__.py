"""The command line: `migrator VERB`. Verbs parse, call the other packages and print."""

from importlib import import_module

from migrator.cli.app import app, main

for _module in (  # in the order of `migrator --help`
    *("plan_verbs", "simulate_verbs", "forecast_verbs", "profile_verb", "learn_verbs"),
    *("serve_verbs", "load_verb", "live_verbs", "top_verb", "dashboard_verb", "admin_verbs"),
    *("cluster_verbs", "gpu_verbs", "gpu_change_verbs", "advise_verb", "reproduce_verb"),
):
    import_module(f"migrator.cli.{_module}")

__all__ = ["app", "main"]
