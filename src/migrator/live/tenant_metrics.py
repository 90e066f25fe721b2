"""Metrics of tenants: goodput, accuracy, models, retrainings, labels, forecasts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from migrator.live.tallies import ADOPTED, FAILED, HIDDEN, REFUSED, REPEATED, STORED, VISIBLE
from migrator.live.tenant_run import Phase, TenantRun
from migrator.live.watched import Watched
from migrator.serve.families import Values, counter, gauge, info

_TENANT = ("tenant",)


class TenantMetrics(Collector):
    """What is known of every tenant."""

    def __init__(self, watched: Watched) -> None:
        self._watched, self._tenants = watched, watched.tenants

    def collect(self) -> Iterator[Metric]:
        """All families."""
        yield from (self._goodput(), self._accuracy())
        yield from self._models()
        yield from self._retrainings()
        yield from (self._labels(), self._prepared(), self._losses(), self._drained())
        yield from self._overheads()
        yield from self._forecasts()

    def _goodput(self) -> Metric:
        return counter(
            "migrator_goodput",
            "Requests answered in time and correctly: those in time, times the part that this "
            "window's labels confirm (while there are few: times the model's accuracy).",
            _TENANT,
            {(name,): self._watched.goodput.so_far(name) for name in self._tenants},
        )

    def _accuracy(self) -> Metric:
        values: dict[tuple[str, ...], float] = {}
        for name, each in self._tenants.items():
            values[name, "served"] = each.accuracy
            measured = self._watched.goodput.measured(name)
            if measured is not None:
                values[name, "measured"] = measured
            expected = _expected(each)
            if expected is not None:
                values[name, "estimated"] = expected
        return gauge(
            "migrator_accuracy_ratio",
            "Accuracy of a model: served is what plans are made with, measured what the labels of "
            "this window say, estimated what the next retraining should bring.",
            ["tenant", "source"],
            values,
        )

    def _models(self) -> Iterator[Metric]:
        numbers = {name: _version(each) for name, each in self._tenants.items()}
        yield gauge(
            "migrator_model_version",
            "The version that serves; each adopted retraining is one more.",
            _TENANT,
            {(name,): number for name, number in numbers.items()},
        )
        yield info(
            "migrator_model",
            "Which model every tenant serves.",
            [
                {"tenant": name, "model": each.live.model, "version": str(numbers[name])}
                for name, each in self._tenants.items()
            ],
        )

    def _retrainings(self) -> Iterator[Metric]:
        jobs = {name: each.retraining for name, each in self._tenants.items()}
        yield gauge(
            "migrator_retraining_progress_ratio",
            "How far this window's retraining is, from 0 to 1; 0 where there is none.",
            _TENANT,
            {(name,): job.progress if job else 0.0 for name, job in jobs.items()},
        )
        yield gauge(
            "migrator_retraining_running",
            "1 while a retraining runs, else 0.",
            _TENANT,
            {(name,): job is not None and job.phase is Phase.RUNNING for name, job in jobs.items()},
        )
        yield counter(
            "migrator_retrainings",
            "Retrainings by what came of them: adopted ones serve, refused ones were no better, "
            "failed ones are tried again.",
            ["tenant", "outcome"],
            self._each(self._watched.tallies.retrainings, (ADOPTED, REFUSED, FAILED)),
        )

    def _labels(self) -> Metric:
        return counter(
            "migrator_labels",
            "True labels that clients sent: stored ones are on disk, repeated ones were known "
            "already, failed ones could not be written.",
            ["tenant", "outcome"],
            self._each(self._watched.tallies.labels, (STORED, REPEATED, FAILED)),
        )

    def _prepared(self) -> Metric:
        return gauge(
            "migrator_workers_prepared",
            "Worker processes with the model built that wait for an instance.",
            _TENANT,
            {(name,): self._watched.prepared(name) for name in self._tenants},
        )

    def _losses(self) -> Metric:
        losses = self._watched.tallies.losses
        return counter(
            "migrator_worker_losses",
            "Workers that died, hung and were killed, or could not start; each is replaced.",
            _TENANT,
            {(name,): losses[name] for name in self._tenants},
        )

    def _drained(self) -> Metric:
        return gauge(
            "migrator_drained",
            "1 while an operator has drained the tenant, which then takes no requests, else 0.",
            _TENANT,
            {(name,): each.drained for name, each in self._tenants.items()},
        )

    def _overheads(self) -> Iterator[Metric]:
        yield gauge(
            "migrator_overhead_seconds",
            "Until a new instance serves the tenant, as measured of late; plans reckon with it.",
            _TENANT,
            {(name,): each.overhead_s for name, each in self._tenants.items()},
        )
        yield counter(
            "migrator_overhead_spent_seconds",
            "Seconds until new instances served: hidden ones passed before the plan needed the "
            "instance, visible ones after.",
            ["tenant", "seen"],
            self._each(self._watched.tallies.overhead_s, (HIDDEN, VISIBLE)),
        )

    def _forecasts(self) -> Iterator[Metric]:
        errors = self._watched.errors
        yield counter(
            "migrator_forecast_absolute_error",
            "Requests by which forecasts were off, slot by slot, either way; only where the policy "
            "plans by a forecast.",
            _TENANT,
            {(name,): value for name, value in errors.absolute.items()},
        )
        yield counter(
            "migrator_forecast_slots",
            "Slots whose forecast was held to what came.",
            _TENANT,
            {(name,): value for name, value in errors.slots.items()},
        )
        yield counter(
            "migrator_forecast_received",
            "Requests that came in those slots.",
            _TENANT,
            {(name,): value for name, value in errors.received.items()},
        )
        yield gauge(
            "migrator_forecast_error_ratio",
            "Of the last window: requests by which its forecasts were off, over those that came.",
            _TENANT,
            {(name,): value for name, value in errors.last.items()},
        )

    def _each(self, counted: Mapping[tuple[str, str], float], kinds: tuple[str, ...]) -> Values:
        """Every tenant with every kind, zeros too: what is absent has no rate."""
        return {
            (name, kind): counted.get((name, kind), 0) for name in self._tenants for kind in kinds
        }


def _version(tenant: TenantRun) -> int:
    return tenant.version.number if tenant.version else 0


def _expected(tenant: TenantRun) -> float | None:
    job = tenant.retraining
    if job is not None and job.phase is not Phase.DONE:
        return job.expected
    return tenant.estimate
