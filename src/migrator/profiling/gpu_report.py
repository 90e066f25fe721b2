"""The page of `migrator gpu measure`: all figures of a GPU beside what simulations assume.

Simulations take latencies and durations from the packaged profiles, memory and SMs from the
packaged boards. On MIG instances nothing slows a neighbour down; under MPS every busy neighbour
does, in proportion to its SMs. A share that comes or goes slows nothing down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING

from migrator import __version__
from migrator.core.catalogue import Board, boards
from migrator.core.errors import InputError
from migrator.core.profiles import INTERFERING_PART, TRAINING_INTERFERENCE, Profile, profile
from migrator.profiling.entries import CREATE_S, Json
from migrator.profiling.measurements import (
    COPY_MIB,
    TRAINING_BATCH,
    Measurement,
    Partition,
    Study,
    WorkKind,
)
from migrator.profiling.results import Results

if TYPE_CHECKING:
    from migrator.profiling.drivers import Driver

_BESIDE = (Study.INTERFERENCE, Study.ISOLATION)
_NONE = "-"


def render(
    driver: Driver,
    todo: Sequence[Measurement],
    results: Results,
    profiles: Sequence[Json],
    command: str,
) -> str:
    """The page, also of an unfinished run."""
    page = _GpuReport(driver, todo, results, profiles)
    lines = [f"# {driver.about['gpu']} measured under {driver.name}", ""]
    lines += [*page.about(command), "", "## In short", "", *page.summary(), ""]
    for title, text, rows in page.sections():
        lines += [f"## {title}", "", text, ""] + ([*_table(rows), ""] if len(rows) > 1 else [])
    return "\n".join(lines)


class _GpuReport:
    def __init__(
        self,
        driver: Driver,
        todo: Sequence[Measurement],
        results: Results,
        profiles: Sequence[Json],
    ) -> None:
        self._driver, self._board, self._results = driver, driver.board, results
        self._todo, self._profiles = todo, profiles
        self._sizes = [driver.board.sms_of(gpcs) for gpcs in driver.board.sizes]
        measured = (results.rows.get(job.key, {}) for job in todo)
        self._rows = [row for row in measured if "jobs" in row]
        self._models = list(
            dict.fromkeys(row["model"] for row in self._rows if row["study"] == Study.LATENCY)
        )
        self._assumed = {model: _packaged(model, self._board) for model in self._models}
        self._alone = {
            _identity(job): float(job["p50_ms"])
            for row in self._rows
            if row["study"] in (Study.LATENCY, Study.TRAINING, Study.BANDWIDTH)
            for job in row["jobs"]
        }

    def about(self, command: str) -> Iterator[str]:
        """How and where it was measured."""
        row = self._results.rows.get("about", {})
        done = sum(self._results.has(job.key) for job in self._todo)
        yield f"`{command}`, MIGRator {__version__}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC."
        yield ""
        yield (
            f"{self._board.name}, driver {self._driver.about['driver_version']}, torch "
            f"{row.get('torch')}, CUDA {row.get('cuda')}; {self._driver.description}."
        )
        if done < len(self._todo):
            yield f"**Unfinished: {done} of {len(self._todo)} measurements.** The command goes on."
        read = ", ".join(f"{name} {value}" for name, value in row.get("read", {}).items())
        if read:
            yield f"At the start: {read}."

    def summary(self) -> Iterator[str]:
        """The figures that simulations depend on most."""
        ratios = self._ratios(Study.LATENCY)
        if ratios:
            yield _spread("Latency over the packaged profile", ratios)
        ratios = self._ratios(Study.TRAINING)
        if ratios:
            yield _spread("Training step over the packaged profile", ratios)
        beside = list(self._isolation())
        if beside:
            most = max(beside, key=lambda row: row[3])
            yield _spread(
                f"Slowdown beside busy neighbours ({self._assumption()})",
                [row[3] for row in beside],
                f" (most: {most[0]})",
            )
        changed = [
            (figures["p50_ms"] / job["p50_ms"], f"{change} beside {job['model']}")
            for job in self._jobs(Study.CHANGES)
            for change, figures in job["during"].items()
        ]
        if changed:
            yield _spread(
                "Slowdown while a share beside it changes (assumed: none)",
                [ratio for ratio, _ in changed],
                f" (most: {max(changed)[1]})",
            )
        took_s = [row["create_s"] + row["destroy_s"] for row in self._results.reconfigurations()]
        if took_s:
            assumed = f"assumed {CREATE_S:g} s"
            yield f"- Create and destroy an instance: median {median(took_s):.3f} s; {assumed}."
        after = self._results.rows.get("after")
        if after is not None:
            yield "- " + ("; ".join(after["changed"]) or "The GPU is as it was before") + "."

    def sections(self) -> Iterator[tuple[str, str, list[list[str]]]]:
        """Title, text and table of each section."""
        yield "Sizes", self._about_sizes(), [*self._size_rows()]
        yield (
            "Latency",
            "Milliseconds of a batch alone, median; in brackets over the packaged profile.",
            [*self._step_rows(Study.LATENCY)],
        )
        yield (
            "Training step",
            f"Milliseconds of a step of {TRAINING_BATCH} samples alone, median; in brackets over "
            "the packaged profile.",
            [*self._step_rows(Study.TRAINING)],
        )
        yield (
            "Beside busy neighbours",
            f"A{self._assumption()[1:]}. Slowdown: median of a step beside them over that "
            "alone. Several equal processes: the median of their medians.",
            [*self._isolation_rows()],
        )
        yield (
            "While a share beside it changes",
            "Assumed: no effect. Inferences of batch 1 on the smallest size, while a process of "
            "the same model starts and stops on another share of that size"
            + ("." if self._driver.coexist else ", which is created and destroyed.")
            + " Steps during each change; over the median of a quiet time before.",
            [*self._change_rows()],
        )
        yield (
            "Starts and memory",
            "Seconds of a cold process on the smallest size, and memory that processes hold.",
            [*self._start_rows()],
        )
        yield "The GPU before and after", self._before_and_after(), []
        faults = [row.get("fault") or row.get("lost") for row in self._results.rows.values()]
        left = [job.description for job in self._todo if not self._results.has(job.key)]
        listed = [*filter(None, faults), *(f"not measured: {what}" for what in left)]
        yield "Left out", "\n".join(f"- {line}" for line in listed) or "Nothing.", []

    def _about_sizes(self) -> str:
        text = (
            f"Bandwidth: a kernel that reads and writes {COPY_MIB} MiB; in brackets the part of "
            "the largest size's."
        )
        if self._driver.coexist:
            return f"{text} Shares are not created, and see the memory of the whole GPU."
        packaged = boards().get(self._board.name)
        if packaged is None:
            return f"{text} The board is not packaged."
        same = packaged.plain_profiles == self._board.plain_profiles
        return f"{text} Profiles as packaged: {'yes' if same else 'no'}."

    def _size_rows(self) -> Iterator[list[str]]:
        yield ["size", "SMs", "memory GiB", "packaged", "GB/s", "create s", "destroy s"]
        rate = {
            job["sms"]: 2 * COPY_MIB * 2**20 / job["p50_ms"] / 1e6
            for job in self._jobs(Study.BANDWIDTH)
        }
        memory = {
            job["sms"]: job["device_mib"] / 1024
            for job in self._jobs(Study.LATENCY)
            if "device_mib" in job
        }
        packaged = boards().get(self._board.name, self._board).plain_profiles
        made = self._results.reconfigurations()
        for gpcs, sms in zip(self._board.sizes, self._sizes, strict=True):
            own = [row for row in made if row["sms"] == sms]
            most = rate.get(self._sizes[-1])
            gb_s = _NONE if sms not in rate else f"{rate[sms]:.0f}"
            gb_s += f" ({rate[sms] / most:.0%})" if sms in rate and most else ""
            expected = packaged[gpcs].memory_gib if gpcs in packaged else None
            yield [
                self._board.plain_profiles[gpcs].name,
                str(sms),
                f"{memory[sms]:.2f}" if sms in memory else _NONE,
                _NONE if expected is None else f"{expected:g}",
                gb_s,
                *(_median(row[name] for row in own) for name in ("create_s", "destroy_s")),
            ]

    def _step_rows(self, study: Study) -> Iterator[list[str]]:
        """A row per model and batch, a cell per size. All training steps have the same batch."""
        is_training = study == Study.TRAINING
        names = (self._board.plain_profiles[gpcs].name for gpcs in self._board.sizes)
        sizes = [f"{name} ({sms} SMs)" for name, sms in zip(names, self._sizes, strict=True)]
        yield ["model" if is_training else "model, batch", *sizes]
        jobs = {(job["model"], job["batch"], job["sms"]): job for job in self._jobs(study)}
        for model, batch in dict.fromkeys(key[:2] for key in jobs):
            cells = (self._cell(jobs.get((model, batch, sms))) for sms in self._sizes)
            yield [model if is_training else f"{model}, {batch}", *cells]

    def _cell(self, job: Json | None) -> str:
        if job is None:
            return _NONE
        ratio = self._over_packaged(job)
        return f"{job['p50_ms']:.3f}" + ("" if ratio is None else f" ({ratio:.2f})")

    def _ratios(self, study: Study) -> list[float]:
        ratios = map(self._over_packaged, self._jobs(study))
        return [ratio for ratio in ratios if ratio is not None]

    def _over_packaged(self, job: Json) -> float | None:
        """The time of a step over that of the packaged profile; None without one."""
        packaged = self._assumed.get(job["model"])
        if packaged is None:
            return None
        if job["task"] == WorkKind.TRAINING:
            assumed_s = packaged.training_s(TRAINING_BATCH).at(job["sms"])
        else:
            assumed_s = packaged.latency_s(job["batch"], job["sms"])
        return float(job["p50_ms"]) / (1e3 * assumed_s)

    def _isolation_rows(self) -> Iterator[list[str]]:
        yield ["what", "alone ms", "beside ms", "slowdown", "assumed"]
        for what, alone_ms, beside_ms, slowdown, assumed in self._isolation():
            cells = f"{alone_ms:.3f}", f"{beside_ms:.3f}", f"{slowdown:.3f}", f"{assumed:.2f}"
            yield [what, *cells]

    def _change_rows(self) -> Iterator[list[str]]:
        yield [
            *("model", "during", "times", "steps", "median ms", "over quiet"),
            *("99% ms", "longest ms"),
        ]
        for job in self._jobs(Study.CHANGES):
            for when, figures in {"quiet": job, **job["during"]}.items():
                yield [
                    *(job["model"], when, str(figures.get("changes", _NONE))),
                    *(str(figures["steps"]), f"{figures['p50_ms']:.3f}"),
                    f"{figures['p50_ms'] / job['p50_ms']:.3f}",
                    *(f"{figures[name]:.3f}" for name in ("p99_ms", "longest_ms")),
                ]

    def _isolation(self) -> Iterator[tuple[str, float, float, float, float]]:
        """What was slowed down, milliseconds alone and beside others, slowdown, assumed one."""
        for row in self._rows:
            if row["study"] not in _BESIDE or row["partition"] != Partition.SHARES:
                continue
            for kind in dict.fromkeys(_identity(job) for job in row["jobs"]):
                own = [job for job in row["jobs"] if _identity(job) == kind]
                if kind not in self._alone or own[0]["task"] == WorkKind.COPY:
                    continue
                beside_ms, alone_ms = median(job["p50_ms"] for job in own), self._alone[kind]
                others = Counter(_identity(job) for job in row["jobs"])
                others[kind] -= 1
                beside = ", ".join(
                    f"{count} x {_description(other)}" for other, count in (+others).items()
                )
                sms = sum(count * other[3] for other, count in others.items())
                what = f"{_description(kind)} beside {beside}"
                assumed = self._slowdown_assumed(own[0], sms)
                yield what, alone_ms, beside_ms, beside_ms / alone_ms, assumed

    def _slowdown_assumed(self, job: Json, beside_sms: int) -> float:
        if not self._driver.coexist:
            return 1.0
        part = beside_sms / self._board.sms / INTERFERING_PART
        if job["task"] == WorkKind.TRAINING:
            return 1 + TRAINING_INTERFERENCE * part
        packaged = self._assumed.get(job["model"])
        return 1 + packaged.interference * part if packaged is not None else 1.0

    def _assumption(self) -> str:
        if self._driver.coexist:
            return "assumed: in proportion to the neighbours' SMs"
        return "assumed: none on MIG instances"

    def _start_rows(self) -> Iterator[list[str]]:
        yield [
            *("model", "start s", "packaged", "load s", "packaged"),
            *("worker MiB", "retraining MiB", "estimate MiB"),
        ]
        for entry in self._profiles:
            packaged = self._assumed.get(entry["model"])
            cells = []
            for name in ("start_s", "load_s"):
                measured = (
                    entry["overhead"][name] if entry["overhead_parts_s"].get("import_s") else 0
                )
                cells.append(f"{measured:.2f}" if measured else _NONE)
                expected = None if packaged is None else getattr(packaged.overhead, name)
                cells.append(_NONE if expected is None else f"{expected:.2f}")
            held = entry.get("worker_held_mib", {})
            yield [
                entry["model"],
                *cells,
                ", ".join(f"{mib:.0f} (batch {batch})" for batch, mib in held.items()) or _NONE,
                *(_mib(entry.get(f"{task}_held_mib")) for task in ("retraining", "estimate")),
            ]

    def _before_and_after(self) -> str:
        lines = []
        for when in ("before", "after"):
            row = self._results.rows.get(when)
            if row is not None:
                places = ", ".join(f"{profile} at {start}" for start, profile in row["instances"])
                modes = ", ".join(f"{name} {value}" for name, value in row["modes"].items())
                processes = ", ".join(row["processes"])
                lines.append(
                    f"- {when}: instances {places or 'none'}; processes {processes or 'none'}; "
                    f"modes {modes or 'not read'}"
                )
        return "\n".join(lines)

    def _jobs(self, study: Study) -> Iterator[Json]:
        for row in self._rows:
            if row["study"] == study:
                yield row["jobs"][0]


def _identity(job: Json) -> tuple[str, str, int, int]:
    return job["task"], job["model"], job["batch"], job["sms"]


def _description(kind: tuple[str, str, int, int]) -> str:
    task, model, batch, sms = kind
    return f"{task} of {model}, batch {batch}, on {sms} SMs"


def _packaged(model: str, board: Board) -> Profile | None:
    try:
        return profile(model, board.name)
    except InputError:
        return None  # a model of the user's own


def _spread(what: str, values: Sequence[float], end: str = "") -> str:
    middle, least, most = median(values), min(values), max(values)
    return f"- {what}: median {middle:.3f}, {least:.3f} to {most:.3f}{end}."


def _median(values: Iterable[float]) -> str:
    listed = list(values)
    return f"{median(listed):.3f}" if listed else _NONE


def _mib(value: float | None) -> str:
    return _NONE if value is None else f"{value:.0f}"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    head, *body = rows
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *body)]
