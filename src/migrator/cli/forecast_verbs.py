"""Verbs for forecasting: `migrator forecast train` and `migrator forecast evaluate`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migrator.cli.app import AsJson, Figure, app, print_json, progress
from migrator.core.errors import InputError

if TYPE_CHECKING:
    from migrator.core.scenario import Trace
    from migrator.forecast.forecaster import Counts, Forecaster
    from migrator.forecast.informer.trained import TrainedInformer
    from migrator.report.forecasts import ForecastRow

WINDOW_S = 200
HISTORY_PART = 0.6
"""The share of a trace that is history only; the rest is for evaluation."""
MEASURED = ("last-mean", "ewma", "ridge", "auto")
"""Default forecasters."""
_FIGURES = ("windows", "mean", "mae", "wape", "pinball", "coverage", "ms")

forecast = typer.Typer(no_args_is_help=True, help="Train the Informer; evaluate forecasters.")
app.add_typer(forecast, name="forecast")

SlotS = Annotated[float, typer.Option("--slot-s", help="Length of a slot in seconds, 0.5 to 10.")]
WindowS = Annotated[
    int, typer.Option("--window-s", min=2, max=3600, help="Length of a window in seconds.")
]


@forecast.command()
def train(
    traces: Annotated[
        list[Path], typer.Argument(metavar="TRACE...", help="Traces in any known format.")
    ],
    out: Annotated[Path, typer.Option(metavar="MODEL", help="File for the trained model.")],
    slot_s: SlotS = 1.0,
    window_s: WindowS = WINDOW_S,
    seconds: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Train on the first N seconds of each only."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the training.")] = 0,
    device: Annotated[str, typer.Option(help="Where to train: cpu or cuda.")] = "cpu",
    as_json: AsJson = False,
) -> None:
    """Train the Informer on traces; use the model as `--forecaster informer:MODEL`."""
    from migrator.workload.traces.formats import load_trace

    if not out.parent.is_dir() or out.is_dir():
        raise InputError(f"--out: {out} cannot be written; name a file in a directory that exists")
    until = None if seconds is None else round(seconds / slot_s)
    histories = [_slots(load_trace(trace), slot_s)[:until] for trace in traces]
    began = time.perf_counter()
    model = _trained(histories, slot_s, window_s, seed, device)
    taken_s = time.perf_counter() - began
    from migrator.forecast.informer.trained import save

    save(model, out)
    summary = model.summary
    if as_json:
        about = {"slot_s": slot_s, "data_hash": model.data_hash}
        print_json({"model": str(out), **about, **asdict(summary), "train_s": taken_s})
        return
    print(f"trained on   {summary.slots} slots of {slot_s:g} s in {taken_s:.1f} s")
    print(f"validation   WAPE {summary.wape:.3f}, last-mean {summary.wape_last_mean:.3f}")
    print(f"model        {out}")


@forecast.command()
def evaluate(
    traces: Annotated[
        list[Path], typer.Argument(metavar="TRACE...", help="Traces in any known format.")
    ],
    forecasters: Annotated[
        str | None,
        typer.Option(metavar="NAME,NAME...", help=f"Forecasters; default: {','.join(MEASURED)}."),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(metavar="MODEL", help="Saved Informer to evaluate as well."),
    ] = None,
    skip_seconds: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="The first N s are history; default: 60%."),
    ] = None,
    slot_s: SlotS = 1.0,
    window_s: WindowS = WINDOW_S,
    figure: Figure = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate forecasters on traces, window by window, without access to the future."""
    from migrator.report.forecasts import HEADERS, draw_forecasts, forecast_cells
    from migrator.report.html_page import check_figure_path
    from migrator.report.terminal import aligned
    from migrator.workload.traces.formats import load_trace

    if figure is not None:
        check_figure_path(figure)
    chosen = _chosen(forecasters, model)
    read = [_job(load_trace(path), path, slot_s, window_s, skip_seconds) for path in traces]
    jobs = [_unseen(job, chosen) for job in read]
    rows = _measured(jobs, chosen)
    notes = [job.words() for job in jobs]
    if figure is not None:
        draw_forecasts(rows, notes, figure)
    if as_json:
        splits = [
            {"trace": job.name, "slots": len(job.counts), "from_slot": job.first} for job in jobs
        ]
        answer = {"slot_s": slot_s, "splits": splits, "rows": [asdict(row) for row in rows]}
        print_json({**answer, "notes": notes})
        return
    print(aligned([HEADERS, *map(forecast_cells, rows)], text_columns=2))
    print("\n" + "\n".join(notes))
    if figure is not None:
        print(f"figure  {figure}")


def _chosen(given: str | None, model: Path | None) -> dict[str, Forecaster]:
    from migrator.forecast.selection import forecaster

    names = list(MEASURED)
    if given is not None:
        names = list(dict.fromkeys(name.strip() for name in given.split(",") if name.strip()))
        if not names:
            raise InputError("--forecasters: no name given; `migrator forecasters` lists them")
    chosen = {name: forecaster(name) for name in names}
    if model is not None:
        chosen["informer"] = forecaster(f"informer:{model}")
    return chosen


@dataclass(frozen=True, eq=False)
class _EvaluationJob:
    """A trace to evaluate from slot `first` on."""

    name: str
    counts: Counts
    first: int
    slot_s: float
    window_slots: int
    trained: str = ""
    """What saved models were trained on; empty without saved models."""

    def words(self) -> str:
        left = len(self.counts) - self.first
        trained = f"{self.trained}, " if self.trained else ""
        return f"{self.name}: {trained}evaluated on the {left} slots from {self.first}."


def _job(
    trace: Trace, path: Path, slot_s: float, window_s: int, skip_seconds: int | None
) -> _EvaluationJob:
    counts = _slots(trace, slot_s)
    window_slots = max(1, round(window_s / slot_s))
    first = round(HISTORY_PART * len(counts))
    if skip_seconds is not None:
        first = round(skip_seconds / slot_s)
    if first < 1 or len(counts) - first < window_slots:
        raise InputError(
            f"{path}: {len(counts)} slots leave no window of {window_slots} to evaluate after "
            f"slot {first}; give a longer trace or a smaller --skip-seconds"
        )
    return _EvaluationJob(path.stem, counts, first, slot_s, window_slots)


def _unseen(job: _EvaluationJob, chosen: Mapping[str, Forecaster]) -> _EvaluationJob:
    """The job without the slots that saved models were trained on, and a note on each model."""
    from migrator.forecast.informer import SavedInformer

    trained: list[str] = []
    first = job.first
    for saved in chosen.values():
        if not isinstance(saved, SavedInformer):
            continue
        from migrator.forecast.informer.trained import data_hash

        saved.check_slots(job.slot_s, job.window_slots)
        slots = saved.model.summary.slots
        if slots > len(job.counts) or data_hash(job.counts[:slots]) != saved.model.data_hash:
            slots = 0  # it was trained on another trace
        what = f"its first {slots} slots" if slots else "another trace"
        trained.append(f"{saved.name} was trained on {what}")
        first = max(first, slots)
        if len(job.counts) - first < job.window_slots:
            raise InputError(
                f"{saved.name}: was trained on {slots} of {job.name}'s {len(job.counts)} slots, "
                "which leaves no window to evaluate; train it with --seconds on fewer"
            )
    return replace(job, first=first, trained=" and ".join(trained))


def _slots(trace: Trace, slot_s: float) -> Counts:
    """Requests per slot; seconds are split into shorter slots as in the simulator."""
    from migrator.workload.tenant_arrivals import TenantArrivals

    grains = slot_s if slot_s >= 1 else 1 / slot_s if slot_s > 0 else 0.0
    if not 0.5 <= slot_s <= 10 or abs(grains - round(grains)) > 1e-9:
        raise InputError("--slot-s: must be 0.5 or a whole number of seconds up to 10")
    return TenantArrivals(trace, slot_s, 0, 0).slots(0.0, float(trace.seconds))


def _trained(
    histories: Sequence[Counts], slot_s: float, window_s: int, seed: int, device: str
) -> TrainedInformer:
    from migrator.forecast.informer import require_torch

    require_torch("informer")
    from migrator.forecast.informer.network import Shape
    from migrator.forecast.informer.training import Settings, train

    if device not in ("cpu", "cuda"):
        raise InputError(f"--device: there is no {device!r}; give cpu or cuda")
    settings = Settings(seed=seed, device=device)
    shape = Shape.for_window(max(1, round(window_s / slot_s)))
    try:
        with progress(settings.steps, "training") as step:
            return train(histories, slot_s, shape, settings, step)
    except (AssertionError, RuntimeError) as error:
        if device == "cpu":
            raise
        raise InputError(f"--device: training on the GPU failed ({error}); give cpu") from error


def _measured(
    jobs: Sequence[_EvaluationJob], forecasters: Mapping[str, Forecaster]
) -> list[ForecastRow]:
    from migrator.forecast.evaluation import measure, origins_of
    from migrator.report.forecasts import ForecastRow

    rows = []
    for job in jobs:
        origins = origins_of(job.first, len(job.counts), job.window_slots)
        with progress(len(origins) * len(forecasters), job.name) as step:
            for name, forecaster in forecasters.items():
                measured = measure(forecaster, job.counts, origins, job.window_slots, step)
                figures = {figure: getattr(measured, figure) for figure in _FIGURES}
                rows.append(ForecastRow(job.name, name, **figures))
    return rows
