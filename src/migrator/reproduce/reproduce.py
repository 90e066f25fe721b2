"""Run experiments by name and build one page: every run once, over the machine's cores."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence

from migrator.core.problem import Charge
from migrator.core.registry import pick
from migrator.core.scenario import LabelsAt
from migrator.policies.migrator import Migrator, Replanned
from migrator.policies.policy import Policy
from migrator.policies.registry import policy
from migrator.records.outcome import RunOutcome
from migrator.report.page import Note, Page, Section, Table
from migrator.report.terminal import capitalised
from migrator.reproduce.best_allocation import BEST_ALLOCATION
from migrator.reproduce.experiment import DIFFERS, PAPER, Experiment, Figures, Outcomes, Setting
from migrator.reproduce.fixed_splits import ALLOCATION_TABLE, RETRAINING_SPLIT
from migrator.reproduce.goodput import BATCH_4, GOODPUT, HIGH_LOAD
from migrator.reproduce.overhead import OVERHEAD
from migrator.reproduce.slo_accuracy import SLO_ACCURACY
from migrator.reproduce.slot_length import SLOT_LENGTH
from migrator.reproduce.sources import WorkloadSource
from migrator.simulation.compare import SimulationJob, run_all

ALL = "all"
EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        ALLOCATION_TABLE,
        BEST_ALLOCATION,
        RETRAINING_SPLIT,
        GOODPUT,
        HIGH_LOAD,
        SLO_ACCURACY,
        BATCH_4,
        SLOT_LENGTH,
        OVERHEAD,
    )
}
"""Every experiment by name, in the paper's order."""
_WINDOW_S = {Charge.SURVIVORS: 2.0, Charge.PAPER: 0.3}
"""Approximate seconds for planning one window."""
_OURS = "Ours: "
_REPLANNED_WINDOW_S = 5.0
_OTHERS_WINDOW_S = 0.06


def chosen(names: Iterable[str]) -> tuple[Experiment, ...]:
    """The experiments of these names, in the paper's order; `all` selects all."""
    picked = {name for name in names if name == ALL or pick("experiment", name, EXPERIMENTS)}
    if ALL in picked:
        picked.update(EXPERIMENTS)
    return tuple(experiment for experiment in EXPERIMENTS.values() if experiment.name in picked)


def jobs_of(names: Iterable[str], setting: Setting) -> tuple[SimulationJob, ...]:
    """Every run that they need, once, the longest first so that all cores end together."""
    wanted = dict.fromkeys(job for experiment in chosen(names) for job in experiment.jobs(setting))
    return tuple(sorted(wanted, key=cost_s, reverse=True))


def cost_s(job: SimulationJob) -> float:
    """Approximate seconds of a run: planning takes nearly all of them."""
    runs: Policy | None = policy(job.policy) if isinstance(job.policy, str) else job.policy
    window_s = _OTHERS_WINDOW_S
    if isinstance(runs, Replanned):
        window_s = _REPLANNED_WINDOW_S
    elif isinstance(runs, Migrator):
        window_s = _WINDOW_S[runs.charge]
    slot_s = job.source.slot_s if isinstance(job.source, WorkloadSource) else 1.0
    return (job.windows or 1) * window_s / slot_s


def run_jobs(
    jobs: Sequence[SimulationJob],
    step: Callable[[], None] = lambda: None,
    processes: int | None = None,
) -> dict[SimulationJob, RunOutcome]:
    """Return the outcome of every run; `step` is called after each. An interrupt stops them all."""
    outcomes = {}
    running = run_all(jobs, processes)
    try:
        for place, outcome in running:
            outcomes[jobs[place]] = outcome
            step()
    finally:
        if isinstance(running, Generator):
            running.close()  # ends its processes, also if the interrupt came outside of it
    return outcomes


def page_of(names: Iterable[str], setting: Setting, outcomes: Outcomes) -> Page:
    """Build a page with a section per experiment."""
    sections = tuple(experiment.section(setting, outcomes) for experiment in chosen(names))
    return Page("The paper's evaluation, redone", _lead(setting), (_summary(sections), *sections))


def _summary(sections: Iterable[Section]) -> Section:
    """A row per experiment: what the paper reports, and the result here."""
    rows = []
    for section in sections:
        notes = {note.title: note.paragraphs for note in section.blocks if isinstance(note, Note)}
        rows.append((section.title, *(_main_sentence(notes[kind][0]) for kind in (PAPER, DIFFERS))))
    caption = "What the paper reports, and what these runs show"
    table = Table(caption, ("experiment", "paper", "here"), tuple(rows))
    return Section("Summary", "summary", (), (table,))


def _main_sentence(paragraph: str) -> str:
    """The sentence that states the result of the runs, else the first one."""
    sentences = [sentence.removesuffix(".") for sentence in paragraph.split(". ")]
    main = next((sentence for sentence in sentences if sentence.startswith(_OURS)), sentences[0])
    return f"{capitalised(main.removeprefix(_OURS))}."


def figures_of(names: Iterable[str], setting: Setting, outcomes: Outcomes) -> Figures:
    """The numbers of every experiment by name."""
    return {
        "traces": "generated" if setting.data is None else "real",
        "seeds": list(setting.seeds),
        "most_windows": setting.most_windows,
        "experiments": {
            experiment.name: experiment.figures(setting, outcomes) for experiment in chosen(names)
        },
    }


def _lead(setting: Setting) -> str:
    traces = (
        "generated traces with the real ones' statistics (`MIGRATOR_DATA` names a folder with "
        "real ones)"
        if setting.data is None
        else "real traces"
    )
    count = len(setting.seeds)
    seeds = (
        "one seed: differences of a few tenths of a percent may be chance"
        if count == 1
        else f"means over {count} seeds"
    )
    return (
        "Every experiment of the paper, run request by request in MIGRator's simulator with "
        f"profiles measured on an H200 and {traces}, {seeds}. Beside each stands what the paper "
        "reports, on an A100, and why ours differs. "
        f"{capitalised(LabelsAt.START.words)}, as in the paper."
    )
