"""Everything that metrics read, made of the real services of a small daemon that does not run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from migrator.control.controller import Controller
from migrator.control.events import Created, Ready
from migrator.core.problem import Charge, Holding, Instance, Kind, Plan, Problem, Task, Tenant
from migrator.live.context import Context
from migrator.live.daemon import new_controller
from migrator.live.labels import LabelCounts
from migrator.live.metrics import collectors
from migrator.live.options import DaemonOptions
from migrator.live.recorder import LiveRecorder
from migrator.policies.policy import Decision
from migrator.serving.http.metrics import metrics_parts
from migrator.serving.http.operations import ApiState
from migrator.serving.queue import Second
from migrator.workload.live import read_live
from support.api_server import api_state
from support.live_context import LabelTable, idle_context
from support.live_daemon import scenario_file

PHOTOS = Task("photos", Kind.INFERENCE)
TABLE = ("metric", "type", "labels", "meaning")


@dataclass
class Run:
    """A daemon before it runs, on a clock that is set by hand."""

    context: Context
    controller: Controller
    recorder: LiveRecorder
    state: ApiState
    labels: dict[tuple[str, int], LabelCounts]
    now_s: list[float]

    def page(self) -> str:
        return b"".join(metrics_parts(self.state.all_collectors)).decode()

    def samples(self) -> list[Sample]:
        families = text_string_to_metric_families(self.page())
        return [sample for family in families for sample in family.samples]

    def value(self, name: str, **labels: str) -> float:
        (value,) = [
            sample.value
            for sample in self.samples()
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        return value

    def counted(self, name: str) -> dict[tuple[str, ...], float]:
        """The values of a metric that are not 0, by its labels in alphabetical order."""
        return {
            tuple(value for _, value in sorted(sample.labels.items())): sample.value
            for sample in self.samples()
            if sample.name == name and sample.value
        }


def watched_run(folder: Path, *tenants: str, policy: str = "migrator") -> Run:
    """The tenants of the small live scenario, window 0, slot 0 at second 100."""
    path = scenario_file(folder, *(tenants or ("photos", "cameras")), window_s=10, policy=policy)
    context = idle_context(DaemonOptions(read_live(path), folder))
    context.workers.prepared.return_value = 2  # type: ignore[attr-defined]
    now_s = [100.0]
    context.clock.now_s = lambda: now_s[0]
    context.clock.start()
    recorder = LiveRecorder(context)
    controller = new_controller(context, recorder, lambda _: None)
    state = replace(
        api_state({}, context.router), collectors=collectors(context, controller, recorder)
    )
    labels = cast(LabelTable, context.labels).set
    return Run(context, controller, recorder, state, labels, now_s)


def eventful(folder: Path) -> Run:
    """The same after a little of everything, so that no family is without a sample."""
    run = watched_run(folder)
    context, recorder, now_s = run.context, run.recorder, run.now_s
    holding: Holding = Instance(0, 4, PHOTOS)
    recorder.decisions.plan_requested("the window begins")
    recorder.plan_followed(decision(run, [(3.0,) * 10, (5.0,) * 10]), 0.5)
    recorder.decisions.plan_requested("because a test wants it")
    for instruction in context.executor.follow(now_s[0], [(holding,)], 1.0):
        recorder.decisions.instructed(instruction)
    now_s[0] += 0.25
    for event in (Created(Instance(0, 4)), Ready(Instance(0, 4), 0.5)):
        recorder.decisions.ended(event)
        for instruction in context.executor.on(now_s[0], event):
            recorder.decisions.instructed(instruction)
        now_s[0] += 0.25
    parts_s = {"create_s": 0.25, "warm_s": 0.5, "load_s": 0.1, "context_s": 0, "first_s": 0.2}
    recorder.decisions.measured("photos", parts_s, 0.5)
    now_s[0] = 101.0
    recorder.forecasts.compare({"photos": 6.0, "cameras": 0.0})
    recorder.forecasts.end_window()
    run.state.access_log.refused["photos", 504] += 1
    judge(run, Second(window=context.router.counts["photos"].window), 15, 5)
    return run


def decision(run: Run, received: list[tuple[float, ...]]) -> Decision:
    """A plan that expects these scenarios of `photos` until the window's end."""
    board, slots = run.context.gpu.board, len(received[0])
    tenant = Tenant("photos", tuple(received), {4: 10.0}, 0.5, (), 0.5, 1)
    problem = Problem(board, 1.0, slots, Charge.SURVIVORS, (tenant,))
    plan = Plan(8.0, 10.0, "exact", 0.1, (), ())
    return Decision(tuple([()] * slots), problem, plan)


def table_of(run: Run) -> list[tuple[str, str, str, str]]:
    """Every family as a row of the documentation's table."""
    rows = []
    for family in text_string_to_metric_families(run.page()):
        if not family.name.startswith("migrator_"):
            continue
        keys = {key for sample in family.samples for key in sample.labels} - {"le"}
        assert family.samples, f"{family.name} has no sample here: its labels are unknown"
        name = f"{family.name}_total" if family.type == "counter" else family.name
        rows.append((name, family.type, ", ".join(sorted(keys)), family.documentation))
    return rows


def sample_names(run: Run) -> set[str]:
    """Every name that a query may use."""
    return {sample.name for sample in run.samples()}


def came(run: Run, tenant: str, in_time: int) -> Second:
    """Count requests that were answered in time."""
    counts = run.context.router.counts[tenant]
    second = counts.receive(run.now_s[0], in_time)
    counts.answer(second, in_time, 0.01, late=False)
    return second


def judge(run: Run, second: Second, correct: int, wrong: int) -> None:
    """Count labels of answers of photos to requests of a second."""
    for is_correct in [True] * correct + [False] * wrong:
        run.context.router.counts["photos"].judge(second, correct=is_correct)
