"""Metrics that are read from a daemon's state when they are asked for.

docs/observability.md lists every metric; a test keeps it complete.
"""

from __future__ import annotations

import platform
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import starmap

from prometheus_client import ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

import migrator
from migrator.control.controller import Controller
from migrator.control.observation import Decision
from migrator.control.retraining import Phase
from migrator.control.tenant_state import TenantState
from migrator.control.units import State, Unit
from migrator.core.catalogue import Place
from migrator.core.evidence import Evidence
from migrator.core.problem import Instance, Share
from migrator.live.context import Context
from migrator.live.recorder import LiveRecorder
from migrator.serving.http.metrics import counter, gauge, info


def collectors(
    context: Context, controller: Controller, recorder: LiveRecorder
) -> tuple[Collector, ...]:
    """All metrics except the router's, including those of the process."""
    return (
        RunMetrics(context),
        TenantMetrics(context, recorder),
        PlanMetrics(context, controller, recorder),
        context.instruments.registry,
        ProcessCollector(registry=None),
    )


class RunMetrics(Collector):
    """The run: scenario, time, instances, disk."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._profiles = {
            gpcs: profile.name for gpcs, profile in context.gpu.board.plain_profiles.items()
        }

    def collect(self) -> Iterator[Metric]:
        clock, scenario = self._context.clock, self._context.scenario
        versions = {"version": migrator.__version__, "python": platform.python_version()}
        yield info("migrator_build", "Versions of MIGRator and Python.", [versions])
        about = {
            "scenario": scenario.name,
            "policy": scenario.policy,
            "forecaster": scenario.forecaster,
            "driver": self._context.serving.driver,
            "board": scenario.board.name,
        }
        text = "What is served: scenario, policy, forecaster, driver and board."
        yield info("migrator_run", text, [about])
        yield _single("migrator_window", "Number of the current window.", clock.number)
        yield _single("migrator_slot", "Current slot of the window, from 0.", clock.slot)
        yield _single("migrator_slots", "Slots of a window.", clock.slots)
        yield _single("migrator_window_seconds", "Length of a window.", clock.window_s)
        text = "1 while an operator has paused reconfiguration, else 0."
        yield _single("migrator_paused", text, self._context.executor.paused)
        yield self._instances()
        yield info(
            "migrator_instance",
            "Every instance and share; gpu, UUID (of the GPU), GPU_I_ID and GPU_I_PROFILE are "
            "those of dcgm-exporter.",
            map(self._labels, self._context.executor.units),
        )
        yield self._disk()

    def _instances(self) -> Metric:
        units = self._context.executor.units
        count = Counter((str(unit.state), self._profile(unit)) for unit in units)
        profiles = list(self._profiles.values())
        if any(isinstance(unit.instance, Share) for unit in units):
            profiles.append("")
        return gauge(
            "migrator_instances",
            "Instances by state and MIG profile; MPS shares have an empty profile.",
            ["state", "GPU_I_PROFILE"],
            {(state, profile): count[state, profile] for state in State for profile in profiles},
        )

    def _labels(self, unit: Unit) -> Mapping[str, str]:
        gpu, holding = self._context.gpu, unit.instance
        name, share, number = str(unit.site), "", ""
        if isinstance(holding, Share):
            name, share = f"{unit.site}#{holding.number}", f"{holding.percent:g}%"
        else:
            place = Place(holding.start, self._profiles[holding.gpcs])
            number = str(self._context.gpu_thread.numbers.get(place, ""))
        return {
            "unit": name,
            "gpu": str(gpu.index),
            "UUID": gpu.uuid,
            "GPU_I_ID": number,
            "GPU_I_PROFILE": self._profile(unit),
            "share": share,
            "state": unit.state,
            "tenant": unit.task.tenant if unit.task else "",
            "task": unit.task.kind if unit.task else "",
        }

    def _profile(self, unit: Unit) -> str:
        holding = unit.instance
        return self._profiles[holding.gpcs] if isinstance(holding, Instance) else ""

    def _disk(self) -> Metric:
        values: dict[tuple[str, ...], float] = {}
        try:
            usage = shutil.disk_usage(self._context.serving.folder)
            values = {("free",): usage.free, ("total",): usage.total}
        except OSError:
            pass  # the folder is gone; there is an alert on the missing value
        text = "The file system that models, labels and records are written to."
        return gauge("migrator_state_disk_bytes", text, ["kind"], values)


class TenantMetrics(Collector):
    """The state of every tenant."""

    def __init__(self, context: Context, recorder: LiveRecorder) -> None:
        self._context, self._tenants, self._recorder = context, context.tenants, recorder

    def collect(self) -> Iterator[Metric]:
        totals = {name: self._context.router.counts[name].total for name in self._tenants}
        text = "Requests answered in time and correctly, by their labels."
        correct = {name: total.correct for name, total in totals.items()}
        yield _per_tenant(counter, "migrator_goodput", text, correct)
        text = "Requests answered in time whose label came."
        judged = {name: total.judged for name, total in totals.items()}
        yield _per_tenant(counter, "migrator_judged", text, judged)
        yield self._accuracy()
        yield from starmap(self._gauge, self._gauges())
        yield self._not_retrained()
        forecasts = self._recorder.forecasts
        text = "Absolute errors of forecasts in requests, summed over slots."
        yield _per_tenant(counter, "migrator_forecast_absolute_error", text, forecasts.absolute)
        text = "Requests received in the slots that were compared with a forecast."
        yield _per_tenant(counter, "migrator_forecast_received", text, forecasts.received)
        text = "Absolute forecast errors of the last window, divided by its requests."
        yield _per_tenant(gauge, "migrator_forecast_error_ratio", text, forecasts.last)

    def _gauges(self) -> Iterator[tuple[str, str, Callable[[TenantState], float]]]:
        """Name, meaning and value of gauges with a value for every tenant."""
        text = "The version that serves; each adopted retraining is one more."
        yield "model_version", text, lambda tenant: tenant.version.number if tenant.version else 0
        text = "Progress of this window's retraining, from 0 to 1."
        yield "retraining_progress_ratio", text, _progress
        text = "1 while a retraining runs, else 0."
        yield "retraining_running", text, lambda tenant: tenant.is_retraining
        text = "Worker processes with a built model that wait for an instance."
        prepared = self._context.workers.prepared
        yield "workers_prepared", text, lambda tenant: prepared(tenant.name)
        text = "1 while an operator has drained the tenant, else 0."
        yield "drained", text, lambda tenant: tenant.drained
        text = "Seconds until a new instance serves the tenant, as measured lately."
        yield "overhead_seconds", text, lambda tenant: tenant.overhead_s

    def _accuracy(self) -> Metric:
        values: dict[tuple[str, ...], float] = {}
        for name, tenant in self._tenants.items():
            values[name, "served", tenant.model.accuracy.evidence] = tenant.accuracy
            measured, expected = self._recorder.measured(name), _expected(tenant)
            if measured is not None:
                values[name, "measured", Evidence.ANSWERS] = measured
            if expected is not None:
                values[name, "estimated", ""] = expected
        return gauge(
            "migrator_accuracy_ratio",
            "Accuracy of a model: served is assumed by plans (evidence: what it rests on), "
            "measured is by labels of this window's answers, estimated is of the next retraining.",
            ["tenant", "source", "evidence"],
            values,
        )

    def _not_retrained(self) -> Metric:
        waiting = {name: self._recorder.why_not_retrained(name) for name in self._tenants}
        return gauge(
            "migrator_retraining_waiting",
            "1 while a tenant is not retrained in this window, with the reason.",
            ["tenant", "reason"],
            {(name, waits.reason.value): 1 for name, waits in waiting.items() if waits is not None},
        )

    def _gauge(self, name: str, text: str, value: Callable[[TenantState], float]) -> Metric:
        values = {tenant: value(state) for tenant, state in self._tenants.items()}
        return _per_tenant(gauge, f"migrator_{name}", text, values)


class PlanMetrics(Collector):
    """The outcomes of the controller, and the plan that is being followed."""

    def __init__(self, context: Context, controller: Controller, recorder: LiveRecorder) -> None:
        self._clock, self._controller, self._recorder = context.clock, controller, recorder

    def collect(self) -> Iterator[Metric]:
        unused, recorder = self._controller.planning.unused, self._recorder
        yield counter(
            "migrator_plans",
            "Plans by outcome: taken, dropped (too late for their window), lost (the policy "
            "failed, died or took too long).",
            ["outcome"],
            {
                ("taken",): recorder.plans_followed,
                ("dropped",): unused.get("dropped", 0),
                ("lost",): unused.get("lost", 0),
            },
        )
        decision, since_s = recorder.last or (Decision(()), None)
        text = "How far the best plan can be above the last one, as proven."
        gap = decision.plan.gap if decision.plan else None
        yield _single("migrator_planner_gap_ratio", text, gap)
        text = "Goodput that the last plan expects until its window ends."
        yield _single("migrator_plan_expected_goodput", text, decision.predicted_goodput)
        text = "Seconds since the last plan was taken."
        age_s = None if since_s is None else self._clock.now_s() - since_s
        yield _single("migrator_plan_age_seconds", text, age_s)


def _single(name: str, text: str, value: float | None) -> Metric:
    """A gauge without labels; None: it has no value at present."""
    return gauge(name, text, [], {} if value is None else {(): value})


def _per_tenant(
    family: Callable[..., Metric], name: str, text: str, values: Mapping[str, float]
) -> Metric:
    return family(name, text, ["tenant"], {(tenant,): value for tenant, value in values.items()})


def _progress(tenant: TenantState) -> float:
    return tenant.retraining.progress if tenant.retraining else 0.0


def _expected(tenant: TenantState) -> float | None:
    job = tenant.retraining
    return tenant.model.estimate if job is None or job.phase is Phase.DONE else job.expected
