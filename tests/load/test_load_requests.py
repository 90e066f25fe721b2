"""What is asked when: the window's classes, all as likely, nothing that was learned from before."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from support.own_samples import write_pictures

from migrator.core.profiles import Service, profile
from migrator.learn.benchmarks.benchmark import Benchmark, Material, Origin
from migrator.learn.model import Modality
from migrator.learn.registry import benchmark
from migrator.learn.samples import Samples
from migrator.load.messages import ModelInput
from migrator.load.requests import RequestSamples
from migrator.load.run import request_samples_of
from migrator.workload.live import LiveTenant


@dataclass(frozen=True)
class Steady(Benchmark):
    """Classes that always look the same; a sample is its own number."""

    def load(self, origin: Origin) -> Material:
        assert origin.seed >= 0
        labels = np.repeat(np.arange(self.classes), 40)
        every = Samples(np.arange(len(labels))[:, None], labels, labels // self.classes_each)
        train = np.arange(len(labels)) % 2 == 0
        return Material(every.rows(train), every.rows(~train), "made up")


BOARD = "A100-40GB"
STEADY = Steady("steady", 4, 2, Modality.IMAGES, "steady")


def steady(seed: int = 0) -> RequestSamples:
    return RequestSamples(STEADY, STEADY.load(Origin()), seed)


@pytest.mark.parametrize("window", range(6))
def test_a_window_shows_the_classes_known_by_then(window: int) -> None:
    asked = steady()
    labels = asked.samples.labels[asked.rows(window, 2000)]
    classes = min(2 * (window + 2), 8)
    counts = np.bincount(labels, minlength=8)
    assert (counts[classes:] == 0).all()
    assert counts[:classes].min() > 0.6 * 2000 / classes


def test_nothing_is_asked_again_that_a_model_may_have_learned() -> None:
    asked = steady()
    train = set(STEADY.load(Origin()).train.rows(np.arange(40)).inputs[:, 0].tolist())
    seen = [set(asked.samples.inputs[asked.rows(window, 500), 0].tolist()) for window in range(3)]
    assert sum(map(len, seen)) == len(set.union(*seen))
    first_classes = {row for row in train if row < 80}
    assert not first_classes & set.union(*seen)  # pre-training has had those


def test_classes_that_drift_are_asked_as_they_look_now() -> None:
    data = benchmark("nc-synthetic")
    asked = RequestSamples(data, data.load(Origin(seed=3)), 3)
    for window in range(5):
        rows = asked.rows(window, 300)
        assert set(asked.samples.arrives[rows].tolist()) == {min(window + 1, 4)}


@pytest.mark.parametrize("name", ["steady", "nc-synthetic"])
def test_no_request_is_a_sample_that_was_uploaded_to_train_on(name: str) -> None:
    chosen = STEADY if name == "steady" else benchmark(name)
    asked = RequestSamples(chosen, chosen.load(Origin()), 0, held_out=True)
    trained: list[bytes] = []
    for window in range(5):
        rows = asked.training_rows(window, window - 1 if window else None)
        trained += [sample.tobytes() for sample in asked.samples.inputs[rows]]
        classes = min(2 * (window + 2), chosen.classes)
        requests = asked.rows(window, 500)
        assert set(asked.samples.labels[requests].tolist()) == set(range(classes))
        if len(rows):
            assert set(asked.samples.labels[rows].tolist()) >= {classes - 2, classes - 1}
        assert not {sample.tobytes() for sample in asked.samples.inputs[requests]} & set(trained)
    assert len(trained) == len(set(trained)) > 0


def test_a_load_that_begins_later_uploads_all_that_the_model_has_not_seen() -> None:
    asked = RequestSamples(STEADY, STEADY.load(Origin()), 0, held_out=True)
    labels = asked.samples.labels[asked.training_rows(2, None)]
    assert set(labels.tolist()) == {2, 3, 4, 5, 6, 7}
    assert not len(asked.training_rows(3, 2)), "after the last scenario the data stays the same"


def test_own_pictures_get_the_size_that_the_server_takes(tmp_path: Path) -> None:
    tenant = LiveTenant(
        service=Service("photos", profile("resnet-50", BOARD), 0.1, 1),
        classes=None,
        pixels=None,
        weights=None,
        benchmark=f"folder:{write_pictures(tmp_path / 'own', side=20)}",
        seed=0,
        epochs=1,
        replay=1,
        held_out=0.2,
    )
    takes = ModelInput("images", "UINT8", (3, 12, 12))
    asked = request_samples_of(tenant, pixels=takes.pixels)
    assert takes.fits(asked.samples.inputs[0])
    assert not takes.fits(request_samples_of(tenant).samples.inputs[0])
    assert ModelInput("words", "INT32", (128,)).pixels is None
