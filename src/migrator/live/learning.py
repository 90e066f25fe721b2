"""The models of all tenants: first versions, estimates and retrainings.

The training itself runs in separate processes (`training`). A new version is used only once it is
on disk.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import msgspec

from migrator.control.events import (
    RetrainingEvent,
    SamplesMissing,
    TrainingCompleted,
    TrainingInterrupted,
    TrainingProgressed,
)
from migrator.control.memory import ProcessKind
from migrator.control.retraining import TenantRetraining
from migrator.control.tenant_state import FEWEST_LABELS, TenantState
from migrator.core.errors import InputError, MigratorError, NotWrittenError
from migrator.core.problem import Holding, Instance, Kind, Task, sms_of
from migrator.core.training import Layers
from migrator.io.weights_folder import knows_classes
from migrator.learn.estimation import AccuracyEstimate, Past, longest_of, usual_fractions
from migrator.learn.retraining import DATA, HAND_OVER, SAVE, TRIAL, RetrainingSettings
from migrator.live.context import Context
from migrator.live.recorder import LiveRecorder
from migrator.live.rollout import Rollout
from migrator.live.training import (
    EstimateResult,
    JobKind,
    TrainingEmptyError,
    TrainingFaultError,
    TrainingJob,
    TrainingLostError,
    TrainingResult,
)
from migrator.live.versions import Version

_PRETRAIN_TRIES = 3
"""Attempts of a pre-training. After a lost process the next one continues from its checkpoints."""
LEAST_LIMIT_S, SLOWEST = 120.0, 10.0
"""A training that exceeds both these seconds and this multiple of its planned time is ended as
hung."""
ESTIMATE_LIMIT_S = 300.0
_FEWER, _FIRST_PART = 4, 2 / 3
"""An estimate that failed on its instance, or took longer than this part of its time, is repeated
once with this fraction of its samples."""
_PAST_KEPT = 5
"""Earlier retrainings that a version tells the next daemon about; older ones hardly count."""
ROLL_OUT_LIMIT_S = 120.0
"""Seconds after which a slow swap or shared store does not delay the next retraining any more."""
_log = logging.getLogger(__name__)


class Learning:
    """The models of all tenants, version by version."""

    def __init__(self, context: Context, rollout: Rollout, recorder: LiveRecorder) -> None:
        self._context, self._rollout, self._recorder = context, rollout, recorder
        self._tenants, self._trainings = context.tenants, context.trainings
        self._board = context.board
        self._estimates: defaultdict[str, dict[int, tuple[AccuracyEstimate, ...]]]
        self._estimates = defaultdict(dict)
        """By tenant and by the window for which they were made; one per configuration."""
        self.past_estimates: defaultdict[str, list[Past]] = defaultdict(list)
        """Of each tenant, the estimates whose retraining has ended, with what it reached."""
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """One lock per tenant, so that versions change one after the other."""
        self._rolling_out: set[asyncio.Task[None]] = set()
        self._timed: set[tuple[str, Layers]] = set()
        """Tenants of which a retraining of these layers has been measured here."""

    async def prepare_all(self, report: Callable[[str], None]) -> None:
        """Give every tenant a first version: its last good one, given weights, or a pre-training.

        Pre-trainings use the whole GPU; it is divided later. `report`: prints their progress for
        the user.
        """
        tenants = list(self._tenants.values())
        found = await asyncio.gather(*map(self._find, tenants))
        live = self._context.live_tenants
        versions = list(zip(tenants, found, strict=True))
        missing = [
            one.name for one, version in versions if not version and live[one.name].benchmark
        ]
        if missing:
            report(f"pre-training {', '.join(missing)}: there is no model of them yet")
        on_host = not missing or self._context.serving.emulated  # emulated GPUs do not compute
        async with nullcontext() if on_host else self._context.gpu_thread.whole() as environment:
            await asyncio.gather(*(self._begin(*one, environment, report) for one in versions))

    async def prepare(self, tenant: TenantState) -> None:
        """Give a tenant that is added later a first version; a pre-training runs on the host."""
        await self._begin(tenant, await self._find(tenant), None, _log.info)

    async def _begin(
        self,
        tenant: TenantState,
        version: Version | None,
        environment: Mapping[str, str] | None,
        report: Callable[[str], None],
    ) -> None:
        past: list[Past] = []
        if version is None and self._context.live_tenants[tenant.name].benchmark:
            version = await self._pretrain(tenant, environment, report)
        if version is not None:
            tenant.switch_version(version)
            past = _past_of(version)
        self.past_estimates[tenant.name] = past
        self._expect_gains(tenant, usual_fractions(self._every_settings(tenant), past))

    def _expect_gains(self, tenant: TenantState, fractions: Sequence[float]) -> None:
        names = (configuration.name for configuration in tenant.training.configurations)
        tenant.model.expect_gains(dict(zip(names, fractions, strict=True)))

    async def roll_back(self, name: str) -> Version | None:
        """Serve the last good version before the present one; None if there is none.

        A running retraining began from the withdrawn version, so its model is not adopted.
        """
        tenant, versions = self._tenants[name], self._context.versions_of(name)
        async with self._locks[name]:
            serving = tenant.version
            if serving is None or not versions.earlier(serving.number):
                return None
            before = await asyncio.to_thread(versions.roll_back, serving.number)
            tenant.switch_version(before)
            await self._rollout.roll_out(before)
        return before

    async def estimate(
        self,
        name: str,
        window: int,
        environment: Mapping[str, str] | None,
        most_samples: int,
        limit_s: float | None = None,
    ) -> None:
        """Estimate the accuracy after a retraining on this window's labels, for the next plan.

        `environment`: of the instance to use; None: the host. `limit_s`: the time that it has.
        """
        tenant = self._tenants[name]
        if (name, JobKind.ESTIMATE) in self._trainings.running:
            return  # the earlier one is used
        version = tenant.version
        every = self._every_settings(tenant)
        try:
            job = replace(
                self._job(JobKind.ESTIMATE, tenant, window, environment),
                limit_s=limit_s or ESTIMATE_LIMIT_S,
                most_samples=most_samples,
                configurations=every,
            )
            result = await self._estimate_twice(job)
        except TimeoutError:
            self._no_estimate(name, "it took too long, with fewer samples too")
            return
        except MigratorError as error:
            self._no_estimate(name, str(error))
            return
        self._context.report_memory(name, ProcessKind.ESTIMATE, result.held_mib)
        estimates = result.estimates
        estimate = estimates[every.index(longest_of(every))]
        fractions = [trial.fraction for trial in estimates]
        if min(fractions) < 1:  # else there is one, or the trial diverged and tells nothing
            self._expect_gains(tenant, fractions)
        tenant.take_estimate(estimate.accuracy, estimate.before, result.replayed, window, version)
        if window < tenant.model.since:
            return  # its retraining ended meanwhile
        if not tenant.is_retraining:
            self._estimates[name].clear()
        self._estimates[name][window + 1] = estimates

    async def _estimate_twice(self, job: TrainingJob) -> EstimateResult:
        """Estimate; with fewer samples if that fails on its instance or takes too long."""
        async with asyncio.timeout(job.limit_s):
            try:
                async with asyncio.timeout(_FIRST_PART * job.limit_s):
                    return await self._trainings.estimate(job)
            except (TrainingFaultError, TimeoutError) as error:
                why = str(error) or f"{job.tenant}: the estimate took too long"
                _log.warning("%s: estimated again, with fewer samples", why)
                fewer = max(FEWEST_LABELS, (job.most_samples or 0) // _FEWER)
                return await self._trainings.estimate(replace(job, most_samples=fewer))

    def _no_estimate(self, name: str, why: str) -> None:
        """Record why the retraining of a tenant could not be estimated."""
        if name in self._tenants:  # else it was removed meanwhile
            self._tenants[name].model.fail_estimate(why)
        message = f"{name}: no estimate: {why}; an earlier one, or earlier retrainings, predict it"
        self._recorder.warn("estimate", message, tenant=name)

    async def train(self, name: str, instance: Holding, environment: Mapping[str, str]) -> str:
        """Retrain on an instance. Returns why the model was adopted or not."""
        tenant = self._tenants[name]
        if isinstance(instance, Instance):
            instance = replace(instance, task=Task(name, Kind.RETRAINING))
        job = tenant.start_retraining(instance)
        if job is None:
            return "there is nothing to retrain on"
        began_from = tenant.version
        # a model that could not be stored was not learned either: it may be retried
        ended: RetrainingEvent = TrainingInterrupted()
        try:
            sms = sms_of(self._board, instance)
            planned_s, profile_s = job.planned_s.at(sms), tenant.profile_s(job).at(sms)
            pace_s = profile_s if self._context.serving.emulated else None
            settings = self._every_settings(tenant)[_position(tenant, job.configuration)]
            training = replace(
                self._job(JobKind.RETRAIN, tenant, job.last_window, environment, pace_s),
                settings=settings,
                limit_s=max(LEAST_LIMIT_S, SLOWEST * planned_s),
                most_samples=job.most_samples,
            )
            result = await self._trainings.train(
                training, lambda part: tenant.on(TrainingProgressed(part))
            )
            self._context.report_memory(name, ProcessKind.RETRAINING, result.held_mib)
            # what a process before this one had learned is not part of it
            epochs = settings.epochs
            part = 1 - result.epochs_resumed / epochs
            if part > 0:
                left_s = planned_s - (1 - part) * job.seconds.at(sms) * job.slower
                self._recorder.trained(
                    name, job, instance, result.training_s, left_s, result.parts_s
                )
                if pace_s is None:  # what it learned may be more or less than was planned
                    samples = result.trained / settings.part
                    profile_s = tenant.training_s(samples, job.configuration).at(sms)
                # none if its first epoch failed; fewer than planned if the last ones were worse
                part_made = (len(result.curve) - result.epochs_resumed) / epochs
                if part_made > 0:
                    self._measure(tenant, part_made * profile_s, result, settings.layers)
            tenant.count_samples(job.labelled, result.samples, len(result.new_classes))
            async with self._locks[name]:
                why = await self._adopt(tenant, job, result, began_from)
            await _remove_files(training)
            ended = TrainingCompleted()
            return why
        except TrainingEmptyError as error:
            ended = SamplesMissing()
            return f"not retrained: {error}"
        except MigratorError:
            raise
        except Exception as error:  # the executor waits for an end in any case
            _log.error("%s: unexpected error in a training", name, exc_info=error)
            raise TrainingLostError(
                f"{name}: {type(error).__name__}: {error}; see the daemon's log"
            ) from error
        finally:
            tenant.on(ended)

    async def _adopt(
        self,
        tenant: TenantState,
        job: TenantRetraining,
        result: TrainingResult,
        began_from: Version | None,
    ) -> str:
        """Keep the model if it was adopted. Returns why it was or not."""
        if began_from is not None and tenant.version != began_from:
            why = f"it began from version {began_from.number}, which was rolled back meanwhile"
            refused = msgspec.structs.replace(result, adopted=False, why=why)
            self._recorder.retrained(tenant.name, job, refused, None)
            return why
        served = result.accuracy_after if result.adopted else result.accuracy_before
        tenant.model.compare(result.accuracy_before, served, job.estimated, job.configuration)
        by_window = self._estimates[tenant.name]
        # one for the next window may have been made while this retraining ran
        estimates = [by_window.pop(window) for window in sorted(by_window) if window <= job.window]
        if estimates:
            estimate = estimates[-1][_position(tenant, job.configuration)]
            self.past_estimates[tenant.name].append(estimate.past(served, result.curve))
        version = None
        tenant.model.measure(result.accuracy_before)
        learned = _learned(tenant, self.past_estimates[tenant.name])
        if not result.adopted and began_from is not None:
            await self._keep(began_from, learned)
        if result.adopted and result.weights is not None:
            about = {
                "window": job.window,
                "new_classes": list(result.new_classes),
                **({"configuration": job.configuration} if job.configuration else {}),
                **learned,
            }
            versions = self._context.versions_of(tenant.name)
            version = await asyncio.to_thread(
                versions.add, result.weights, result.accuracy_after, about
            )
            tenant.model.adopt(version, result.accuracy_after)
        tenant.model.learn_labels(job.window, job.learns_now or 0)
        ended_s = time.monotonic()
        # in the background: large weights take seconds, for which the instance need not wait
        task = asyncio.create_task(self._roll_out(tenant, job, result, version, ended_s))
        self._rolling_out.add(task)
        task.add_done_callback(self._rolling_out.discard)
        return result.why

    async def _keep(self, version: Version, learned: Mapping[str, Any]) -> None:
        """Keep with the serving version what a refused retraining has shown."""
        versions = self._context.versions_of(version.tenant)
        try:
            about = {**version.about, **learned}
            await asyncio.to_thread(versions.note, version.number, about)
        except NotWrittenError as error:
            _log.warning("%s", error)

    async def _roll_out(
        self,
        tenant: TenantState,
        job: TenantRetraining,
        result: TrainingResult,
        version: Version | None,
        ended_s: float,
    ) -> None:
        async with self._locks[tenant.name]:
            if version is not None and tenant.version == version:
                try:
                    await asyncio.wait_for(self._rollout.roll_out(version), ROLL_OUT_LIMIT_S)
                except TimeoutError:
                    message = "%s: version %d did not reach every worker and the store within %g s"
                    _log.error(message, tenant.name, version.number, ROLL_OUT_LIMIT_S)
                seconds = time.monotonic() - ended_s
                self._recorder.add_training_part(tenant.name, HAND_OVER, seconds)
            self._recorder.retrained(tenant.name, job, result, version)

    async def _find(self, tenant: TenantState) -> Version | None:
        """The newest good version, or one made from the weights in the scenario."""
        live = self._context.live_tenants[tenant.name]
        versions, given = self._context.versions_of(tenant.name), live.weights
        version = await asyncio.to_thread(versions.newest_good)
        if version is not None or given is None:
            return version
        if live.benchmark and not await asyncio.to_thread(knows_classes, given):
            return None  # a pre-training on the first classes begins with them
        return await asyncio.to_thread(versions.add, given, None, {"from": given.name})

    async def _pretrain(
        self,
        tenant: TenantState,
        environment: Mapping[str, str] | None,
        report: Callable[[str], None],
    ) -> Version:
        versions = self._context.versions_of(tenant.name)
        job = self._job(JobKind.PRETRAIN, tenant, 0, environment)
        job = replace(job, weights=self._context.live_tenants[tenant.name].weights)
        logged = 0

        def tell_progress(part: float) -> None:
            """Print every quarter."""
            nonlocal logged
            if logged < int(4 * part) < 4:
                logged = int(4 * part)
                report(f"pre-training {tenant.name}: {part:.0%}")

        result = await self._pretrain_with_retries(job, tell_progress)
        report(f"pre-trained {tenant.name}: accuracy {result.accuracy_after:.1%}")
        if result.weights is None:
            raise InputError(f"{tenant.name}: pre-training gave no model ({result.why})")
        if environment is not None:
            live = self._context.live_tenants[tenant.name]
            whole_s = live.training_s(result.samples).at(self._board.sms)
            # several share the GPU now; only a pre-training reads a benchmark and tries: a hint
            other_s = sum(result.parts_s.get(part, 0.0) for part in (DATA, TRIAL, SAVE))
            fixed_s = max(0.0, result.fixed_s - other_s)
            tenant.measure_training(whole_s, result.training_s - other_s, fixed_s=fixed_s)
        past = []
        if result.estimate is not None:
            past.append(result.estimate.past(result.accuracy_after, result.curve))
        about = {"pre-trained": True, **_learned(tenant, past)}
        added = await asyncio.to_thread(versions.add, result.weights, result.accuracy_after, about)
        await _remove_files(job)
        return added

    def _measure(
        self, tenant: TenantState, profile_s: float, result: TrainingResult, layers: Layers
    ) -> None:
        """Plan later retrainings with what this one took. The start of its process is not part of
        it: plans add it as the overhead of a new instance."""
        kind = tenant.name, layers
        first = not self._context.serving.emulated and kind not in self._timed
        self._timed.add(kind)
        tenant.measure_training(
            profile_s, result.training_s, fixed_s=result.fixed_s, first=first, layers=layers
        )

    async def _pretrain_with_retries(
        self, job: TrainingJob, progress: Callable[[float], None]
    ) -> TrainingResult:
        for _ in range(_PRETRAIN_TRIES - 1):
            try:
                return await self._trainings.train(job, progress)
            except TrainingLostError as error:
                _log.warning("%s", error)
        return await self._trainings.train(job, progress)

    def _every_settings(self, tenant: TenantState) -> tuple[RetrainingSettings, ...]:
        """How the tenant's configurations are carried out, in their order."""
        seed = self._context.live_tenants[tenant.name].seed
        return tuple(
            RetrainingSettings(epochs=way.epochs, seed=seed, part=way.part, layers=way.layers)
            for way in tenant.training.configurations
        )

    def _job(
        self,
        kind: JobKind,
        tenant: TenantState,
        window: int,
        environment: Mapping[str, str] | None,
        pace_s: float | None = None,
    ) -> TrainingJob:
        live, serving = self._context.live_tenants[tenant.name], self._context.serving
        held_mib = tenant.memory.held_mib(ProcessKind.RETRAINING)
        return TrainingJob(
            kind=kind,
            tenant=tenant.name,
            model=self._context.models[tenant.name],
            folder=serving.folder / "trainings" / tenant.name / kind,
            weights=tenant.version.weights if tenant.version else None,
            labels=self._context.labels.path,
            window=window,
            since=min(tenant.model.since, window),
            settings=RetrainingSettings(epochs=live.epochs, seed=live.seed),
            replay=live.replay,
            held_out=live.held_out,
            past=tuple(self.past_estimates[tenant.name]),
            environment=environment or {},
            device=serving.device if environment else "cpu",
            pace_s=pace_s,
            emulated_mib=(tenant.memory.least_for_training_mib, held_mib) if pace_s else (0.0, 0.0),
            benchmark=live.benchmark,
        )


def _position(tenant: TenantState, configuration: str) -> int:
    """Of the configuration with this name among the tenant's."""
    return [one.name for one in tenant.training.configurations].index(configuration)


async def _remove_files(job: TrainingJob) -> None:
    """Remove the checkpoints and the result of a training that has ended: a version has a copy."""
    await asyncio.to_thread(shutil.rmtree, job.folder, ignore_errors=True)


def _learned(tenant: TenantState, past: Sequence[Past]) -> dict[str, Any]:
    """What retrainings take and gain, as a version tells the next daemon."""
    return {
        **tenant.duration.facts,
        "gains": tenant.model.gains.facts,
        "past": msgspec.to_builtins(past[-_PAST_KEPT:]),
    }


def _past_of(version: Version) -> list[Past]:
    """The same read again; empty for a version that was given as weights."""
    try:
        return msgspec.convert(version.about.get("past", []), list[Past])
    except msgspec.ValidationError as error:
        _log.warning("%s: estimates begin anew: %s", version.weights, error)
        return []
