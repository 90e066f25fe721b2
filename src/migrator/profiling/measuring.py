"""One pass over the measurements: prepared in groups, run in sequence, saved immediately.

A measurement that does not fit an instance or fails is saved as a sentence, and the pass continues.
If a worker is lost, its measurement is skipped and the next run tries it again. Three losses in a
row end the pass.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict

from migrator.core.errors import InputError, MigratorError
from migrator.profiling.measurements import Measurement, Study
from migrator.profiling.results import Results
from migrator.profiling.shares import Driver, memory_gib
from migrator.profiling.workers import (
    Json,
    Pool,
    WorkerLostError,
    WorkerProcess,
    places,
)

_MOST_LOST = 3
_LEAD_S = 0.02
"""Seconds between the request to start together and the start."""

Told = Callable[[Measurement, Json], None]


class _LostInError(WorkerLostError):
    """A worker was lost in a known measurement."""

    def __init__(self, measurement: Measurement, reason: WorkerLostError) -> None:
        super().__init__(str(reason))
        self.measurement = measurement


def _answers(measurement: Measurement, at: list[WorkerProcess]) -> list[Json]:
    try:
        return [worker.answer() for worker in at]
    except WorkerLostError as error:
        raise _LostInError(measurement, error) from error


def model_of(measurement: Measurement) -> str:
    """The measured model. Other models in the measurement are neighbours."""
    return measurement.jobs[0][1].model


def next_group(
    waiting: deque[Measurement], alone: set[str], *, coexist: bool = True
) -> list[Measurement]:
    """Remove the first measurement and those after it that can be prepared at the same time."""
    first = waiting.popleft()
    group, used = [first], set(places(first))
    if not coexist or first.study is Study.START or first.key in alone or len(first.jobs) > 1:
        return group
    while waiting and waiting[0].study is first.study and waiting[0].key not in alone:
        needed = set(places(waiting[0]))
        if needed & used:
            break
        used |= needed
        group.append(waiting.popleft())
    return group


class Measuring:
    """One pass, until `until_s` of the monotonic clock."""

    def __init__(self, driver: Driver, results: Results, told: Told, until_s: float) -> None:
        self._driver, self._results, self._told, self._until_s = driver, results, told, until_s
        self._pool = Pool(driver)
        self._alone: set[str] = set()
        """Keys of measurements to retry while no other process uses the GPU."""
        self._lost = 0
        self._measured = 0

    def measure(self, todo: Sequence[Measurement]) -> int:
        """Run the measurements and return how many were measured."""
        waiting = deque(todo)
        models = list(dict.fromkeys(model_of(each) for each in todo))
        try:
            while waiting and self._time_for(waiting[0].estimate_s):
                group = next_group(waiting, self._alone, coexist=self._driver.coexist)
                if group[0].study is not Study.START and not self._pool.hello:
                    self._introduce(self._pool.workers(group)[0][0], models)
                waiting.extendleft(reversed(self._group(group)))
                self._note_reconfigurations()
            self._results.add({"key": "about end", "read": self._driver.readings()})
        finally:
            self._pool.close()
            self._note_reconfigurations()
        return self._measured

    def _introduce(self, worker: WorkerProcess, models: list[str]) -> None:
        """Save the software versions and check the models.

        An unusable model ends the run before the first measurement.
        """
        about = {name: self._pool.hello[name] for name in ("torch", "cuda")}
        self._results.add({"key": "about", **about, "read": self._driver.readings()})
        worker.ask({"do": "check", "models": models})
        answer = worker.answer()
        if "fault" in answer:
            raise InputError(answer["said"])

    def _group(self, group: list[Measurement]) -> list[Measurement]:
        """Run the measurements of a group; return those to retry."""
        left = list(group)
        try:
            if group[0].key in self._alone:
                self._pool.forget()
            if group[0].study is Study.START:
                self._keep(left[0], self._start(left[0]))
                return []
            for each, at, ready in self._prepared(group):
                if not self._time_for(each.pace.total_s):
                    return []
                again = self._one(each, at, ready)
                left.remove(each)
                left += [each] if again else []
        except WorkerLostError as error:
            culprit = error.measurement if isinstance(error, _LostInError) else left[0]
            left.remove(culprit)
            self._note_loss(culprit, error)
            return left
        return [each for each in left if each.key in self._alone]

    def _prepared(
        self, group: list[Measurement]
    ) -> list[tuple[Measurement, list[WorkerProcess], list[Json]]]:
        """Prepare all processes at the same time; return their answers."""
        workers = self._pool.workers(group)
        for each, at in zip(group, workers, strict=True):
            for (_, job), worker in zip(each.jobs, at, strict=True):
                worker.ask({"do": "prepare", "job": asdict(job)})
        return [(each, at, _answers(each, at)) for each, at in zip(group, workers, strict=True)]

    def _one(self, each: Measurement, at: list[WorkerProcess], ready: list[Json]) -> bool:
        """Run a measurement and save its result; return whether to retry it alone."""
        answers = ready
        if not any("fault" in answer for answer in ready):
            start_s = time.monotonic() + _LEAD_S
            for worker in at:
                worker.ask({"do": "run", "start_s": start_s, "pace": asdict(each.pace)})
            answers = _answers(each, at)
        full = any(answer.get("fault") == "memory" for answer in answers)
        if full and each.key not in self._alone:
            # Possibly only because the other processes, which are kept for speed, hold the memory.
            self._alone.add(each.key)
            return True
        told = [
            {**before.get("ok", {}), **after} for before, after in zip(ready, answers, strict=True)
        ]
        self._keep(each, told)
        return False

    def _start(self, measurement: Measurement) -> list[Json]:
        """Measure a cold start in a new process."""
        if not self._driver.coexist:
            self._pool.close()
        ((sms, job),) = measurement.jobs
        with ExitStack() as stack:
            share = stack.enter_context(self._driver.share(sms))
            worker = WorkerProcess(share, self._driver.device)
            stack.callback(worker.end)
            worker.ready()
            worker.ask({"do": "start", "job": asdict(job)})
            return [worker.answer()]

    def _keep(self, measurement: Measurement, answers: list[Json]) -> None:
        row = _head(measurement)
        faults = [each for each in answers if "fault" in each]
        if faults:
            row["fault"] = self._sentence(measurement, faults[0])
        else:
            jobs = zip(measurement.jobs, answers, strict=True)
            row["jobs"] = [
                {"sms": sms, **asdict(job), **_flat(answer)} for (sms, job), answer in jobs
            ]
            self._measured += 1
        self._lost = 0
        self._results.add(row)
        self._told(measurement, row)

    def _sentence(self, measurement: Measurement, fault: Json) -> str:
        """A sentence that says what is left out, and why."""
        sms, job = measurement.jobs[0]
        if fault["fault"] == "input":
            return f"{job.model}: {fault['said']}"
        what = f"{job.model}: {job.task} of {job.batch} on {sms} SMs"
        if fault["fault"] == "memory":
            room = memory_gib(self._driver.board, sms)
            within = f"the {room:g} GiB" if room else "the memory"
            return f"{what} left out, it does not fit {within} of that instance"
        return f"{what} left out, it failed ({fault['said']})"

    def _note_loss(self, measurement: Measurement, error: WorkerLostError) -> None:
        self._pool.close()
        sms, job = measurement.jobs[0]
        row = {
            **_head(measurement),
            "lost": f"{job.model}: {job.task} of {job.batch} on {sms} SMs lost, {error}",
        }
        self._results.add(row)
        self._told(measurement, row)
        self._lost += 1
        if self._lost >= _MOST_LOST:
            raise MigratorError(
                f"{_MOST_LOST} workers were lost in a row, the last one in {row['lost']}; run the "
                f"same command again to go on from {self._results.path}"
            )

    def _note_reconfigurations(self) -> None:
        while self._driver.reconfigured:
            self._results.add_reconfiguration(self._driver.reconfigured.pop(0))

    def _time_for(self, seconds: float) -> bool:
        return time.monotonic() + seconds <= self._until_s


def _head(measurement: Measurement) -> Json:
    return {
        "key": measurement.key,
        "study": measurement.study,
        "partition": measurement.partition,
        "round": measurement.round,
        "model": model_of(measurement),
    }


def _flat(answer: Json) -> Json:
    """A worker's answer with the fields of `ok` on the top level."""
    rest = {name: each for name, each in answer.items() if name != "ok"}
    return {**rest, **answer.get("ok", {})}
