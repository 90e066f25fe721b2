"""A saved model comes back whole, or not at all."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from migrator.core.errors import InputError
from migrator.forecast.informer.network import Shape
from migrator.forecast.informer.trained import TrainedInformer, load, save
from migrator.forecast.informer.training import Settings, train

TINY = Shape(lookback=60, start=10, ahead=20, width=8, heads=2)
HISTORY = np.random.default_rng(1).poisson(30, 400).astype(float)


@pytest.fixture(scope="module")
def model() -> TrainedInformer:
    return train([HISTORY], 0.5, TINY, Settings(steps=6, batch=8, every=3))


@pytest.fixture
def path(model: TrainedInformer, tmp_path: Path) -> Path:
    save(model, tmp_path / "tenant.informer")
    return tmp_path / "tenant.informer"


def test_it_comes_back_as_it_was(model: TrainedInformer, path: Path) -> None:
    again = load(path)
    assert (again.shape, again.slot_s) == (model.shape, 0.5)
    assert (again.data_hash, again.summary) == (model.data_hash, model.summary)
    for name, tensor in model.network.state_dict().items():
        assert again.network.state_dict()[name].equal(tensor)
    np.testing.assert_array_equal(again.ahead(HISTORY, 20, 20), model.ahead(HISTORY, 20, 20))


def test_every_cut_and_every_changed_weight_is_noticed(path: Path) -> None:
    whole = path.read_bytes()
    for at in range(0, len(whole), len(whole) // 9):
        path.write_bytes(whole[:at])
        with pytest.raises(InputError, match="is no saved model, or damaged"):
            load(path)
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        ends = [entry.header_offset for entry in archive.infolist()[1:]]
    for at in (end - 1 for end in ends):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(InputError, match="is no saved model, or damaged"):
            load(path)


def test_another_version_is_named(path: Path) -> None:
    with np.load(path) as file:
        arrays = dict(file)
    header = json.loads(str(arrays.pop("header")))
    np.savez(path.with_suffix(".npz"), header=json.dumps(header | {"version": 3}), **arrays)
    with pytest.raises(InputError, match="of version 3, and this release reads 4; train it again"):
        load(path.with_suffix(".npz"))


def test_what_is_no_model_is_refused_and_nothing_is_unpickled(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("second,count\n0,1\n")
    np.savez(tmp_path / "pickled.npz", header=np.array({"version": 4}, dtype=object))
    no_model = "is no saved model"
    for name, sentence in {
        "trace.csv": no_model,
        "pickled.npz": no_model,
        "none": "cannot be read",
    }.items():
        with pytest.raises(InputError, match=sentence):
            load(tmp_path / name)


def test_where_the_network_has_no_answer_it_is_the_last_windows_mean(
    model: TrainedInformer,
) -> None:
    short, able = model.points(HISTORY, np.array([59, 60]), 30, 20)
    assert set(short) == {HISTORY[39:59].mean()}
    assert len(set(able[:20])) == 20
    assert set(able[20:]) == {HISTORY[40:60].mean()}
