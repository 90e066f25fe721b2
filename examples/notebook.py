"""Plan, simulate and compare from Python, in cells (`# %%`) for Jupyter and editors.

pip install 'migrator-gpu[figures,pandas]'
python examples/notebook.py
"""

# %% A window: which instance serves or retrains which model in every second
import migrator
from migrator.planning.problem_file import example_problem

plan = migrator.plan(example_problem())
print(plan)
plan.draw("plan.html")

# %% The plan as a table: how many GPCs each task has on average
gpcs = plan.to_pandas().groupby(["tenant", "task"]).gpcs.sum() / plan.problem.slots
print(gpcs.round(2))


# %% A policy of ten lines
def busier_first(observation):
    """4 GPCs for the tenant with more requests in the last minute, 2 for the other, 1 to train."""
    tenants = sorted(observation.tenants, key=lambda tenant: -tenant.history[-60:].sum())
    layout = {tenant.name: gpcs for tenant, gpcs in zip(tenants, (4, 2), strict=True)}
    for tenant in tenants:
        if tenant.retraining is not None:
            layout[f"{tenant.name}/retraining"] = 1
            break
    return layout


# %% A scenario: two tenants on an A100 for two windows of 200 seconds
scenario = {
    "version": 1,
    "gpu": "A100-40GB",
    "window_s": 200,
    "windows": 2,
    "tenants": [
        {
            "name": name,
            "model": model,
            "slo_ms": 100,
            "arrivals": {"generator": "azure", "mean_rps": rps},
            "retraining": {
                "windows": [
                    {"accuracy_pre": 0.6, "accuracy_post": 0.8, "seconds": {"1": 90, "7": 20}},
                    {"accuracy_pre": 0.5, "accuracy_post": 0.8, "seconds": {"1": 90, "7": 20}},
                ]
            },
        }
        for name, model, rps in [("photos", "mobilenet-v2", 300), ("mail", "bert-base", 60)]
    ],
}
run = migrator.simulate(scenario, busier_first)
print(run)

# %% The same scenario under other policies
comparison = migrator.compare(scenario, [busier_first, "equal-mig"], seeds=2)
print(comparison)
print(comparison.to_pandas()[["policy", "goodput_share", "slo_attainment", "accuracy"]])
