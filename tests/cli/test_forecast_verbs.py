"""`migrator forecast train` and `evaluate`, as typed, with quick training."""

import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from support.gpu_cli import answered, migrator, refused

from migrator.forecast.informer import training
from migrator.forecast.informer.trained import load
from migrator.forecast.selection import forecaster

WINDOW = ("--window-s", "10")
NO_GPU = (
    []
    if torch.cuda.is_available()
    else [(("train", "TRACE", "--out", "m", "--device", "cuda"), "on the GPU failed.*; give cpu")]
)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = partial(training.Settings, steps=4, batch=4, every=2)
    monkeypatch.setattr(training, "Settings", quick)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return _written(tmp_path / "steady.csv", 300)


def _written(path: Path, seconds: int) -> Path:
    counts = np.random.default_rng(1).poisson(20, seconds)
    path.write_text("second,count\n" + "".join(f"{at},{n}\n" for at, n in enumerate(counts)))
    return path


def _ran(*arguments: object) -> str:
    done = migrator("forecast", *arguments)
    assert done.code == 0, done.err
    return done.out


def test_train_writes_a_model_that_forecasts(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    trained = answered(
        "forecast", "train", trace, "--out", out, "--slot-s", 2, *WINDOW, "--seconds", 240
    )
    assert (trained["slots"], trained["slot_s"], trained["model"]) == (120, 2.0, str(out))
    assert {"wape", "wape_last_mean", "data_hash", "train_s", "best_step"} <= set(trained)
    assert load(out).shape.ahead == 5
    assert forecaster(f"informer:{out}").ahead(np.full(90, 4.0), 5, 5).shape[1] == 5


def test_seconds_left_out_are_never_read(trace: Path, tmp_path: Path) -> None:
    longer = _written(tmp_path / "longer.csv", 300)
    longer.write_text(longer.read_text() + "".join(f"{at},900\n" for at in range(300, 400)))
    for path, out in ((trace, "a"), (longer, "b")):
        _ran("train", path, "--out", tmp_path / out, "--seconds", 280, *WINDOW)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_evaluate_gives_every_figure_and_the_split(trace: Path, tmp_path: Path) -> None:
    other = _written(tmp_path / "other.csv", 250)
    evaluation = answered("forecast", "evaluate", trace, other, *WINDOW)
    assert evaluation["splits"] == [
        {"trace": "steady", "slots": 300, "from_slot": 180},
        {"trace": "other", "slots": 250, "from_slot": 150},
    ]
    names = ["last-mean", "ewma", "ridge", "auto"]
    assert [row["forecaster"] for row in evaluation["rows"]] == 2 * names
    for row in evaluation["rows"]:
        assert {"mae", "wape", "pinball", "coverage", "ms", "windows"} <= set(row)
        assert 0.1 < row["wape"] < 0.4
    assert evaluation["rows"][0]["windows"] == 12


def test_evaluate_as_a_table(trace: Path) -> None:
    text = _ran("evaluate", trace, "--forecasters", "last-mean,ridge", *WINDOW)
    head, first, second, *_ = text.splitlines()
    assert head.split() == [
        *("trace", "forecaster", "windows", "mean", "MAE", "WAPE", "pinball", "coverage", "ms")
    ]
    assert first.split()[:3] == ["steady", "last-mean", "12"]
    assert second.split()[:2] == ["steady", "ridge"]
    assert "steady: evaluated on the 120 slots from 180." in text


def test_a_model_is_not_held_to_what_it_was_trained_on(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    _ran("train", trace, "--out", out, "--seconds", 250, *WINDOW)
    options = ("--forecasters", f"last-mean,informer:{out}", *WINDOW)
    evaluation = answered("forecast", "evaluate", trace, *options)
    assert evaluation["splits"] == [{"trace": "steady", "slots": 300, "from_slot": 250}]
    assert [row["windows"] for row in evaluation["rows"]] == [5, 5]
    assert evaluation["notes"] == [
        f"steady: informer:{out} was trained on its first 250 slots, evaluated on the 50 slots "
        "from 250."
    ]
    _ran("train", trace, "--out", out, "--seconds", 295, *WINDOW)
    said = refused("forecast", "evaluate", trace, "--forecasters", f"informer:{out}", *WINDOW)
    assert "was trained on 295 of steady's 300 slots, which leaves" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("train", "TRACE", "--out", "none/model"), "--out: none/model cannot be written"),
        (("train", "TRACE", "--out", "m", "--slot-s", "0.3"), "--slot-s: must be 0.5 or"),
        (("train", "TRACE", "--out", "m", "--seconds", "50"), "50 slots of history are too few"),
        (("train", "TRACE", "--out", "m", "--device", "gpu"), "--device: there is no 'gpu'"),
        *NO_GPU,
        (("evaluate", "TRACE", "--forecasters", "ridg"), "did you mean ridge"),
        (("evaluate", "TRACE", "--forecasters", "informer:none"), "none: cannot be read"),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_what_is_refused(
    arguments: tuple[str, ...], words: str, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trace.parent)
    typed = [str(trace) if argument == "TRACE" else argument for argument in arguments]
    assert re.search(words, refused("forecast", *typed, *WINDOW))


def test_a_model_of_other_slots_or_windows_is_refused(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    _ran("train", trace, "--out", out, *WINDOW)
    model = ("--forecasters", f"informer:{out}", "--slot-s", 2)
    said = refused("forecast", "evaluate", trace, *model, *WINDOW)
    assert "trained on slots of 1 s and these have 2 s" in said
