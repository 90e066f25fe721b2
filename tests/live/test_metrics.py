"""The collectors beside real parts: every figure where it belongs."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.watched_run import PHOTOS, Run, came, eventful, watched_run

from migrator.control.events import Created, Ready, TrainingCompleted, TrainingProgressed
from migrator.control.tenant_state import TrainingRoom
from migrator.core.problem import Holding, Instance, Share


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return eventful(tmp_path)


def test_tenants(run: Run) -> None:
    came(run, "photos", 40)
    assert run.value("migrator_requests_total", tenant="photos", outcome="in_time") == 40
    assert run.value("migrator_goodput_total", tenant="photos") == 15  # of 20 labelled answers
    assert run.value("migrator_judged_total", tenant="photos") == 20
    assert run.value("migrator_accuracy_ratio", tenant="photos", source="measured") == 0.75
    assert run.value("migrator_accuracy_ratio", tenant="photos", source="served") == 1
    assert run.value("migrator_forecast_error_ratio", tenant="photos") == pytest.approx(2 / 6)
    assert run.value("migrator_refusals_total", tenant="photos", code="504") == 1
    assert run.value("migrator_workers_prepared", tenant="cameras") == 2
    assert run.value("migrator_drained", tenant="photos") == 0
    run.context.tenants["photos"].drain()
    assert run.value("migrator_drained", tenant="photos") == 1


def test_a_retraining_shows_its_progress_and_what_it_should_bring(run: Run) -> None:
    tenant = run.context.tenants["photos"]
    tenant.begin_window(1, 100, 0.6, TrainingRoom(98, 8))
    tenant.start_retraining(Instance(0, 4))
    tenant.on(TrainingProgressed(0.4))
    assert run.value("migrator_retraining_progress_ratio", tenant="photos") == 0.4
    assert run.value("migrator_retraining_running", tenant="photos") == 1
    expected = run.value("migrator_accuracy_ratio", tenant="photos", source="estimated")
    assert 0.6 < expected <= 1
    tenant.on(TrainingCompleted())
    assert run.value("migrator_retraining_running", tenant="photos") == 0


def test_instances_have_the_labels_of_dcgm_exporter(run: Run) -> None:
    assert run.value("migrator_instances", state="ready", GPU_I_PROFILE="4g.20gb") == 1
    assert run.value("migrator_instances", state="ready", GPU_I_PROFILE="1g.5gb") == 0
    (labels,) = [
        sample.labels for sample in run.samples() if sample.name == "migrator_instance_info"
    ]
    assert labels == {
        "unit": "4g@0",
        "gpu": "0",
        "UUID": run.context.gpu.uuid,
        "GPU_I_ID": "1",
        "GPU_I_PROFILE": "4g.20gb",
        "share": "",
        "state": "ready",
        "tenant": "photos",
        "task": "inference",
    }


def test_shares_have_no_profile_and_are_told_apart(tmp_path: Path) -> None:
    run = watched_run(tmp_path)
    shares: tuple[Holding, ...] = (Share(0, 25.0, PHOTOS), Share(1, 25.0, PHOTOS))
    run.context.executor.follow(run.now_s[0], [shares], 1.0)
    for share in shares:
        run.context.executor.on(run.now_s[0], Created(share))
        run.context.executor.on(run.now_s[0], Ready(share, 0.1))
    assert run.value("migrator_instances", state="ready", GPU_I_PROFILE="") == 2
    labels = [sample.labels for sample in run.samples() if sample.name == "migrator_instance_info"]
    assert {(label["share"], label["GPU_I_PROFILE"], label["GPU_I_ID"]) for label in labels} == {
        ("25%", "", "")
    }
    assert len({label["unit"] for label in labels}) == 2
