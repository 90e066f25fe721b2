"""The profiler: runs measurements within a time budget and writes a profile file.

Measurements are prepared in groups, run in sequence and saved immediately, so that an interrupted
run can resume. One that does not fit an instance or fails is saved as a sentence. If a worker is
lost, its measurement is skipped and the next run tries it again. Three losses in a row end the run.
Workers, daemons and instances are always removed.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from types import FrameType

from migrator.core.errors import InputError, MigratorError
from migrator.io.atomic_write import write_atomically
from migrator.profiling.changes import figures_by_change, make_changes
from migrator.profiling.drivers import Driver, Json
from migrator.profiling.entries import VERSION, entry
from migrator.profiling.measurements import COPIED, Measurement, Study, on_instances
from migrator.profiling.results import Results
from migrator.profiling.workers import (
    Pool,
    ProfileWorkerLostError,
    ProfileWorkerProcess,
    worker_keys,
)

MOST_LOST = 3
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LEAD_S = 0.02
"""Seconds between the request to start together and the start."""
_WATCHED_S = 0.5
"""Seconds after which a watched process is asked whether to go on."""

Report = Callable[[Measurement, Json], object]
"""Called with each measurement and its row of results."""


@dataclass(frozen=True)
class Profiled:
    """Result of a run."""

    profiles: tuple[Json, ...]
    measured: int
    taken_over: int
    """Number of measurements of an interrupted earlier run."""
    left: int
    """Number of measurements without time left, or whose worker was lost."""
    faults: tuple[str, ...]


def require_torch() -> None:
    """Raise InputError with the install command if torch is missing. Imports nothing."""
    for needed in ("torch", "safetensors"):
        if find_spec(needed) is None:
            raise InputError(
                f"models need {needed}, which is not installed: pip install 'migrator-gpu[learn]'"
            )


def profile(
    todo: Sequence[Measurement],
    driver: Driver,
    results: Results,
    out: Path,
    *,
    budget_s: float = float("inf"),
    report: Report = lambda _measurement, _row: None,
) -> Profiled:
    """Measure what the results lack, within the time budget, and write the profiles."""
    until_s = time.monotonic() + budget_s
    require_torch()
    todo = todo if driver.coexist else on_instances(todo)
    taken_over = sum(results.has(job.key) for job in todo)
    with ended_by_signals():
        measured = measure(todo, driver, results, until_s, report)
    entries = write_profiles(todo, driver, results, out)
    left = sum(not results.has(job.key) for job in todo)
    return Profiled(tuple(entries), measured, taken_over, left, faults_of(todo, results))


def measure(
    todo: Sequence[Measurement], driver: Driver, results: Results, until_s: float, report: Report
) -> int:
    """Measure what the results lack until `until_s` of the monotonic clock; return how many."""
    missing = [job for job in todo if not results.has(job.key)]
    if not missing:
        return 0
    with driver.open():
        return Measuring(driver, results, report, until_s).measure(missing)


def faults_of(todo: Sequence[Measurement], results: Results) -> tuple[str, ...]:
    """A sentence per measurement that was left out or lost."""
    rows = (results.rows[job.key] for job in todo if job.key in results.rows)
    said = (row.get("fault") or row["lost"] for row in rows if "jobs" not in row)
    return tuple(dict.fromkeys(said))


def write_profiles(
    todo: Sequence[Measurement], driver: Driver, results: Results, out: Path
) -> list[Json]:
    """Write the profiles of the models and return them; an error if none could be measured."""
    rows = [results.rows[job.key] for job in todo if job.key in results.rows]
    about = provenance(driver, results)
    where = f"{_hardware(about)}; {driver.description}"
    models = dict.fromkeys(job.model for job in todo)
    by_model = [
        entry(model, driver.board, rows, where, results.reconfigurations()) for model in models
    ]
    entries = [model_entry for model_entry in by_model if model_entry is not None]
    if not entries:
        faults = faults_of(todo, results)
        raise MigratorError(
            faults[0] if faults else "there was no time to measure anything; raise --budget-s"
        )
    _write(out, about, entries)
    return entries


class Measuring:
    """One pass over measurements, until `until_s` of the monotonic clock."""

    def __init__(self, driver: Driver, results: Results, report: Report, until_s: float) -> None:
        self._driver, self._results, self._report = driver, results, report
        self._until_s = until_s
        self._pool = Pool(driver)
        self._alone: set[str] = set()
        """Keys of measurements to retry while no other process uses the GPU."""
        self._took_s: dict[Study, float] = {}
        """The longest measurement of each kind, from its preparation on."""
        self._lost = 0
        self._measured = 0

    def measure(self, todo: Sequence[Measurement]) -> int:
        """Run the measurements and return how many were measured."""
        waiting = deque(todo)
        models = list(dict.fromkeys(job.model for job in todo if job.model != COPIED))
        try:
            while waiting and self._has_time(self._needed_s(waiting[0])):
                together = self._driver.coexist and not self._driver.alike
                group = next_group(waiting, self._alone, coexist=together)
                if group[0].study is not Study.START and not self._pool.hello:
                    self._check_models(self._pool.workers(group)[0][0], models)
                waiting.extendleft(reversed(self._run_group(group)))
                self._save_reconfigurations()
            self._results.add({"key": "about end", "read": self._driver.readings()})
        finally:
            self._pool.close()
            self._save_reconfigurations()
        return self._measured

    def _check_models(self, worker: ProfileWorkerProcess, models: list[str]) -> None:
        """Save the software versions and check the models.

        An unusable model ends the run before the first measurement.
        """
        about = {name: self._pool.hello[name] for name in ("torch", "cuda")}
        self._results.add({"key": "about", **about, "read": self._driver.readings()})
        worker.ask("check", models)
        answer = worker.answer()
        if "fault" in answer:
            raise InputError(answer["said"])

    def _run_group(self, group: list[Measurement]) -> list[Measurement]:
        """Run the measurements of a group; return those to retry."""
        left = list(group)
        try:
            if group[0].key in self._alone:
                self._pool.forget()
            if group[0].study is Study.START:
                began_s = time.monotonic()
                self._save(left[0], [self._start(left[0])])
                self._note(Study.START, time.monotonic() - began_s)
                return []
            workers = self._pool.workers(group)
            began_s = time.monotonic()
            for measurement, at in zip(group, workers, strict=True):
                for (_, job), worker in zip(measurement.jobs, at, strict=True):
                    worker.ask("prepare", job)
            ready = [
                _answers(measurement, at) for measurement, at in zip(group, workers, strict=True)
            ]
            for measurement, at, prepared in zip(group, workers, ready, strict=True):
                if not self._has_time(measurement.pace.total_s):
                    return []
                done = self._run(measurement, at, prepared)
                left.remove(measurement)
                left += [] if done else [measurement]
            self._note(group[0].study, (time.monotonic() - began_s) / len(group))
        except ProfileWorkerLostError as error:
            culprit = error.measurement or left[0]
            left.remove(culprit)
            self._save_loss(culprit, error)
        return left

    def _run(
        self, measurement: Measurement, at: list[ProfileWorkerProcess], prepared: list[Json]
    ) -> bool:
        """Run a measurement and save its result; return False if it is to be retried alone."""
        answers = prepared
        repeats = measurement.study is not Study.MEMORY
        usable = not any("fault" in answer for answer in prepared)
        if usable and measurement.study is Study.CHANGES:
            answers = [self._run_beside_changes(measurement, at[0])]
        elif usable and repeats:
            start_s = time.monotonic() + _LEAD_S
            for worker in at:
                worker.ask("run", start_s, measurement.pace)
            answers = _answers(measurement, at)
        full = any(answer.get("fault") == "memory" for answer in answers)
        if full and measurement.key not in self._alone:
            # Possibly only because the other processes, which are kept for speed, hold the memory.
            self._alone.add(measurement.key)
            return False
        pairs = zip(prepared, answers, strict=True)
        self._save(measurement, [{**before, **after} for before, after in pairs])
        return True

    def _run_beside_changes(
        self, measurement: Measurement, neighbour: ProfileWorkerProcess
    ) -> Json:
        pace, ended = measurement.pace, Event()
        with ThreadPoolExecutor(1) as beside:
            quiet_s = time.monotonic() + pace.warm_s
            watched = beside.submit(_watched, neighbour, ended)
            try:
                time.sleep(pace.warm_s + pace.measured_s)
                until_s = time.monotonic() + pace.after_s
                changes, started = make_changes(self._driver, measurement, until_s)
            finally:
                ended.set()
            steps = watched.result()
        if "fault" in started or "fault" in steps:
            return started if "fault" in started else steps
        return figures_by_change(steps["began_s"], steps["took_s"], quiet_s, changes)

    def _start(self, measurement: Measurement) -> Json:
        if not self._driver.coexist:
            self._pool.close()
        with ExitStack() as stack:
            worker = self._pool.start(self._pool.keys(measurement)[0], stack)
            worker.ready()
            worker.ask("start", measurement.jobs[0][1])
            return worker.answer()

    def _save(self, measurement: Measurement, answers: list[Json]) -> None:
        row = _head(measurement)
        faults = [answer for answer in answers if "fault" in answer]
        if faults:
            row["fault"] = self._sentence(measurement, faults[0])
        else:
            jobs = zip(measurement.jobs, answers, strict=True)
            row["jobs"] = [{"sms": sms, **asdict(job), **answer} for (sms, job), answer in jobs]
            self._measured += 1
        self._lost = 0
        self._results.add(row)
        self._report(measurement, row)

    def _sentence(self, measurement: Measurement, fault: Json) -> str:
        """A sentence that says what is left out, and why."""
        if fault["fault"] == "input":
            return f"{measurement.model}: {fault['said']}"
        what = f"{_describe(measurement)} left out"
        if fault["fault"] == "memory":
            room = self._driver.memory_gib(measurement.jobs[0][0])
            within = f"the {room:g} GiB" if room else "the memory"
            return f"{what}, it does not fit {within} of that instance"
        return f"{what}, it failed ({fault['said']})"

    def _save_loss(self, measurement: Measurement, error: ProfileWorkerLostError) -> None:
        self._pool.close()
        row = {**_head(measurement), "lost": f"{_describe(measurement)} lost, {error}"}
        self._results.add(row)
        self._report(measurement, row)
        self._lost += 1
        if self._lost >= MOST_LOST:
            raise MigratorError(
                f"{MOST_LOST} workers were lost in a row, the last one in {row['lost']}; run the "
                f"same command again to go on from {self._results.path}"
            )

    def _save_reconfigurations(self) -> None:
        while self._driver.reconfigurations:
            self._results.add_reconfiguration(self._driver.reconfigurations.pop(0))

    def _needed_s(self, measurement: Measurement) -> float:
        """The time of a measurement: estimated, or the longest of its kind so far if that is more.

        Processes that do not run yet have to start.
        """
        took_s = max(measurement.estimate_s, self._took_s.get(measurement.study, 0.0))
        started = measurement.study is Study.START or self._pool.has_started(measurement)
        return took_s if started else took_s + self._pool.start_s

    def _note(self, study: Study, took_s: float) -> None:
        self._took_s[study] = max(took_s, self._took_s.get(study, 0.0))

    def _has_time(self, seconds: float) -> bool:
        return time.monotonic() + seconds <= self._until_s


def next_group(
    waiting: deque[Measurement], alone: set[str], *, coexist: bool = True
) -> list[Measurement]:
    """Remove the first measurement and those after it that can be prepared at the same time."""
    first = waiting.popleft()
    group, used = [first], set(worker_keys(first))
    if not coexist or first.study is Study.START or first.key in alone or len(first.jobs) > 1:
        return group
    while waiting and waiting[0].study is first.study and waiting[0].key not in alone:
        needed = set(worker_keys(waiting[0]))
        if needed & used:
            break
        used |= needed
        group.append(waiting.popleft())
    return group


def _watched(neighbour: ProfileWorkerProcess, ended: Event) -> Json:
    """When each of its steps began and how long it took, until `ended`."""
    steps: dict[str, list[float]] = {"began_s": [], "took_s": []}
    while not ended.is_set():
        neighbour.ask("watch", _WATCHED_S)
        answer = neighbour.answer()
        if "fault" in answer:
            return answer
        for name in steps:
            steps[name] += answer[name]
    return steps


def _answers(measurement: Measurement, at: list[ProfileWorkerProcess]) -> list[Json]:
    try:
        return [worker.answer() for worker in at]
    except ProfileWorkerLostError as error:
        error.measurement = measurement
        raise


def _head(measurement: Measurement) -> Json:
    return {
        "key": measurement.key,
        "study": measurement.study,
        "partition": measurement.partition,
        "round": measurement.round,
        "model": measurement.model,
    }


def _describe(measurement: Measurement) -> str:
    sms, job = measurement.jobs[0]
    return f"{job.model}: {job.task} of {job.batch} on {sms} SMs"


def provenance(driver: Driver, results: Results) -> Json:
    """Place, software, date and conditions of the measurements.

    Clocks were read before and after.
    """
    about = results.rows.get("about", {})
    return {
        **driver.about,
        "shares": driver.description,
        "torch": about.get("torch"),
        "cuda": about.get("cuda"),
        **{package: _version(package) for package in ("transformers", "torchvision")},
        "python": sys.version.partition(" ")[0],
        "date": datetime.now(UTC).date().isoformat(),
        "read_before": about.get("read", {}),
        "read_after": results.rows.get("about end", {}).get("read", {}),
    }


def _hardware(about: Json) -> str:
    named = (("driver", "driver_version"), ("torch", "torch"), ("CUDA", "cuda"))
    versions = [f"{word} {about[key]}" for word, key in named if about[key] is not None]
    return ", ".join([about["gpu"], *versions, about["date"]])


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _write(out: Path, about: Json, entries: list[Json]) -> None:
    """Write one line per profile, short enough to read and to compare by eye."""
    lines = ",\n".join(f"  {json.dumps(entry, allow_nan=False)}" for entry in entries)
    text = (
        f'{{\n "version": {VERSION},\n "measured": {json.dumps(about, allow_nan=False)},\n'
        f' "profiles": [\n{lines}\n ]\n}}\n'
    )
    with write_atomically(out) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into an exception, so that workers and daemons are stopped.

    After the first signal, Ctrl-C included, no other one disturbs that.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _frame: FrameType | None) -> None:
        for later in _ENDING:
            signal.signal(later, signal.SIG_IGN)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in _ENDING}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
