"""What the functions of the Python interface return: values, tables and figures."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from migrator.control.rehearsal import predicted_goodput as predicted_goodput_of
from migrator.core.catalogue import board
from migrator.core.comparison import Row
from migrator.core.errors import InputError
from migrator.core.problem import Plan, Problem
from migrator.planning.check import requests_short
from migrator.planning.plan_file import plan_to_json
from migrator.records.outcome import RunOutcome
from migrator.records.runs import recorded_run
from migrator.report.comparison import comparison_table, draw_comparison
from migrator.report.html_page import check_figure_path, check_page_path, write_page
from migrator.report.plan_figure import draw_plan
from migrator.report.plan_text import plan_summary, plan_timeline
from migrator.report.run_json import rows_json, run_json
from migrator.report.run_page import run_page
from migrator.report.run_text import run_table

Records = Sequence[Mapping[str, Any]]


class _Shown:
    """A result that a notebook shows as its text."""

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


@dataclass(frozen=True, repr=False)
class PlanResult(_Shown):
    """A planned window."""

    problem: Problem
    plan: Plan

    @property
    def goodput(self) -> float:
        """Requests that are answered in time and correctly."""
        return self.plan.goodput

    @property
    def predicted_goodput(self) -> float:
        """Goodput with the gaps in serving that no order of steps avoids."""
        return predicted_goodput_of(self.problem, self.plan)

    @property
    def status(self) -> str:
        """`proven optimal`, `within x%` or `time limit`."""
        return self.plan.status

    def to_json(self) -> dict[str, object]:
        """The plan as `migrator plan --json` prints it."""
        return {
            **plan_to_json(self.plan),
            "charge": str(self.problem.charge),
            "predicted_goodput": self.predicted_goodput,
        }

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` with a row per slot and instance."""
        return _frame(
            [
                {
                    "slot": slot,
                    "start": instance.start,
                    "gpcs": instance.gpcs,
                    "tenant": instance.task.tenant if instance.task else None,
                    "task": str(instance.task.kind) if instance.task else None,
                }
                for slot, allocation in enumerate(self.plan.slots)
                for instance in allocation.instances
            ]
        )

    def draw(self, path: str | Path) -> Path:
        """Draw the plan as an HTML page or a PNG, by the ending of `path`."""
        check_figure_path(Path(path), "draw")
        draw_plan(self.problem, self.plan, Path(path))
        return Path(path)

    def _summary(self) -> list[str]:
        short = requests_short(self.problem, self.plan)
        return plan_summary(self.problem, self.plan, self.predicted_goodput, short)

    def __str__(self) -> str:
        return "\n".join([*self._summary(), "", plan_timeline(self.problem, self.plan)])

    def __repr__(self) -> str:
        return f"<PlanResult: goodput {self.goodput:,.1f}, {self.status}>"


@dataclass(frozen=True, repr=False)
class RunResult(_Shown):
    """A simulated run of a scenario under one policy."""

    outcome: RunOutcome

    @property
    def goodput_share(self) -> float:
        """The share of the requests that were answered in time and correctly."""
        return self.outcome.tally.goodput_share

    @property
    def slo_attainment(self) -> float:
        """The share of the requests that were answered in time."""
        return self.outcome.tally.slo_attainment

    @property
    def accuracy(self) -> float:
        """The share of correct answers among those in time."""
        return self.outcome.tally.accuracy

    def to_json(self) -> dict[str, Any]:
        """The run as `migrator simulate --json` prints it."""
        return run_json(self.outcome)

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` with a row per window and tenant."""
        return _frame(
            [
                {"window": window["window"], **tenant}
                for window in self.to_json()["windows"]
                for tenant in window["tenants"]
            ]
        )

    def report(self, path: str | Path) -> Path:
        """Write the page that `migrator simulate --report` writes."""
        check_page_path(Path(path), "report")
        records = self.outcome.records
        assert records is not None, "the run was not recorded"
        write_page(run_page([recorded_run(records)], board(records.run.board)), Path(path))
        return Path(path)

    def __str__(self) -> str:
        return run_table(self.outcome)

    def __repr__(self) -> str:
        what = f"{self.outcome.scenario} under {self.outcome.policy}"
        return f"<RunResult: {what}, goodput {self.goodput_share:.1%} of the requests>"


@dataclass(frozen=True, repr=False)
class Comparison(_Shown):
    """Runs of several policies, scenarios and seeds."""

    rows: tuple[Row, ...]
    """A row per scenario and policy, with means over seeds."""
    runs: tuple[RunOutcome, ...]

    @property
    def best(self) -> str:
        """The policy of the highest goodput, over all scenarios if there are several."""
        last = self.rows[-1].scenario
        rows = [row for row in self.rows if row.scenario == last]
        return max(rows, key=lambda row: row.goodput_share.mean).policy

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` with a row per scenario and policy.

        With two seeds or more, `_difference` and `_half_width` columns have each measure's
        difference from the `reference` policy and the half width of its 95% confidence interval.
        """
        return _frame([_flat(row) for row in rows_json(self.rows)])

    def draw(self, path: str | Path) -> Path:
        """Draw the comparison as an HTML page or a PNG, by the ending of `path`."""
        check_figure_path(Path(path), "draw")
        draw_comparison(self.rows, Path(path))
        return Path(path)

    def __str__(self) -> str:
        return comparison_table(self.rows)

    def __repr__(self) -> str:
        return f"<Comparison: {len(self.runs)} runs, highest goodput under {self.best}>"


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with means as plain columns, and with intervals beside them if there are any."""
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if not isinstance(value, Mapping):
            flat[key] = value
            continue
        flat[key] = value["mean"]
        difference = value["difference"]
        if difference is not None and difference["half_width"] is not None:
            flat[f"{key}_difference"] = difference["mean"]
            flat[f"{key}_half_width"] = difference["half_width"]
    return flat


def _frame(rows: Records) -> Any:
    try:
        pd = import_module("pandas")
    except ModuleNotFoundError as error:
        raise InputError("to_pandas needs pandas: pip install 'migrator-gpu[pandas]'") from error
    return pd.DataFrame(rows)
