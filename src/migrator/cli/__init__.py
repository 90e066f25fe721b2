"""The command line: `migrator VERB`. Verbs parse, call the other packages and print."""

from importlib import import_module

from migrator.cli.app import app, main

for _module in (
    *(
        "file_verbs",
        "plan_verbs",
        "simulate_verbs",
        "forecast_verbs",
        "profile_verb",
        "learn_verbs",
    ),
    *("serve_verbs", "load_verb", "admin_verbs", "live_verbs", "cluster_verbs", "gpu_verbs"),
    *("gpu_layout_verbs", "gpu_measure_verb", "reproduce_verb"),
):
    import_module(f"migrator.cli.{_module}")

GROUPS = {
    "Start here": ("example", "validate", "plan", "simulate", "serve", "load"),
    "Plan and simulate": (
        *("check", "compare", "advise", "policies", "reproduce", "schema", "boards"),
    ),
    "Forecasts, models and profiles": (
        *("forecast", "forecasters", "retrain", "models", "benchmarks", "profile", "profiles"),
    ),
    "Watch and control a live run": (*("status", "windows", "report", "dashboard", "admin"),),
    "GPUs and clusters": ("gpu", "cluster", "gateway"),
}
"""Groups of verbs in `migrator --help`, in this order. Verbs that are in none of them come last."""
OTHER_VERBS = "Other verbs"

_group_of = {verb: group for group, verbs in GROUPS.items() for verb in verbs}
_order = {verb: position for position, verb in enumerate(_group_of)}
for _command in app.registered_commands:
    _command.name = _command.name or str(getattr(_command.callback, "__name__", ""))
    _command.rich_help_panel = _group_of.get(_command.name, OTHER_VERBS)
for _verbs in app.registered_groups:
    _verbs.rich_help_panel = _group_of.get(_verbs.name or "", OTHER_VERBS)
app.registered_commands.sort(key=lambda verb: _order.get(verb.name or "", len(_order)))
app.registered_groups.sort(key=lambda verbs: _order.get(verbs.name or "", len(_order)))

__all__ = ["app", "main"]
