"""Verbs for forecasting: `migrator forecast train` and `migrator forecast evaluate`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migrator.cli.app import AsJson, app, print_json, progress
from migrator.core.errors import InputError

if TYPE_CHECKING:
    from migrator.core.scenario import Trace
    from migrator.forecast.evaluation import Figures
    from migrator.forecast.forecaster import Counts, Forecaster
    from migrator.forecast.informer.trained import TrainedInformer

WINDOW_S = 200
HISTORY_PART = 0.6
"""The share of a trace that is history only; the rest is for evaluation."""
MEASURED = ("last-mean", "ewma", "ridge", "auto")
"""Default forecasters."""
_HEADERS = ("trace", "forecaster", "windows", "mean", "MAE", "WAPE", "pinball", "coverage", "ms")

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
        typer.Option(
            metavar="NAME,NAME...",
            help=f"Forecasters, also informer:MODEL; default: {','.join(MEASURED)}.",
        ),
    ] = None,
    slot_s: SlotS = 1.0,
    window_s: WindowS = WINDOW_S,
    as_json: AsJson = False,
) -> None:
    """Evaluate forecasters on traces, window by window, without access to the future."""
    from migrator.report.terminal import aligned
    from migrator.workload.traces.formats import load_trace

    chosen = _chosen(forecasters)
    read = [_job(load_trace(path), path, slot_s, window_s) for path in traces]
    jobs = [_unseen(job, chosen) for job in read]
    rows = _measured(jobs, chosen)
    notes = [job.words() for job in jobs]
    if as_json:
        splits = [
            {"trace": job.name, "slots": len(job.counts), "from_slot": job.first} for job in jobs
        ]
        answer = {"slot_s": slot_s, "splits": splits, "rows": [row.as_json() for row in rows]}
        print_json({**answer, "notes": notes})
        return
    print(aligned([_HEADERS, *map(_cells, rows)], text_columns=2))
    print("\n" + "\n".join(notes))


def _chosen(given: str | None) -> dict[str, Forecaster]:
    from migrator.forecast.selection import forecaster

    names = list(MEASURED)
    if given is not None:
        names = list(dict.fromkeys(name.strip() for name in given.split(",") if name.strip()))
        if not names:
            raise InputError("--forecasters: no name given; `migrator forecasters` lists them")
    return {name: forecaster(name) for name in names}


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


def _job(trace: Trace, path: Path, slot_s: float, window_s: int) -> _EvaluationJob:
    counts = _slots(trace, slot_s)
    window_slots = max(1, round(window_s / slot_s))
    first = round(HISTORY_PART * len(counts))
    if first < 1 or len(counts) - first < window_slots:
        raise InputError(
            f"{path}: {len(counts)} slots leave no window of {window_slots} to evaluate after "
            f"slot {first}; give a longer trace"
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


@dataclass(frozen=True)
class _EvaluationRow:
    """The errors of a forecaster on a trace."""

    trace: str
    forecaster: str
    figures: Figures

    def as_json(self) -> dict[str, object]:
        names = ("windows", "mean", "mae", "wape", "pinball", "coverage", "ms")
        figures = {name: getattr(self.figures, name) for name in names}
        return {"trace": self.trace, "forecaster": self.forecaster, **figures}


def _cells(row: _EvaluationRow) -> tuple[str, ...]:
    """The cells under `_HEADERS`."""
    figures = row.figures
    numbers = (figures.mae, figures.wape, figures.pinball, figures.coverage)
    return (
        *(row.trace, row.forecaster, str(figures.windows), f"{figures.mean:.2f}"),
        *("-" if number is None else f"{number:.3f}" for number in numbers),
        f"{figures.ms:.1f}",
    )


def _measured(
    jobs: Sequence[_EvaluationJob], forecasters: Mapping[str, Forecaster]
) -> list[_EvaluationRow]:
    from migrator.forecast.evaluation import measure, origins_of

    rows = []
    for job in jobs:
        origins = origins_of(job.first, len(job.counts), job.window_slots)
        with progress(len(origins) * len(forecasters), job.name) as step:
            for name, forecaster in forecasters.items():
                figures = measure(forecaster, job.counts, origins, job.window_slots, step)
                rows.append(_EvaluationRow(job.name, name, figures))
    return rows
