"""A user's own samples: folder:PATH, as pictures or as texts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.gpu_cli import answered, refused
from support.own_samples import write_pictures, write_texts

from migrator.core.errors import InputError
from migrator.learn.benchmarks.benchmark import Origin, require_every_class, window_data
from migrator.learn.model import Modality
from migrator.learn.registry import benchmark
from migrator.load.requests import RequestSamples

FIVE = ("a", "b", "c", "d", "e")


def test_classes_arrive_in_their_order_and_the_last_group_may_be_smaller(tmp_path: Path) -> None:
    folder = benchmark(f"folder:{write_pictures(tmp_path / 'own', FIVE)}")
    assert (folder.classes, folder.windows, folder.modality) == (5, 2, Modality.IMAGES)
    material = folder.load(Origin(seed=1))
    require_every_class(folder, material)
    assert material.train.inputs.shape == (40, 3, 16, 16)
    assert np.bincount(material.held_out.labels).tolist() == [2] * 5
    last = window_data(folder, material, 2, memory=3, seed=0)
    assert last.new_classes == {4}
    assert np.bincount(last.replay.labels).tolist() == [3] * 4
    asked = RequestSamples(folder, material, 0)
    assert set(asked.samples.labels[asked.rows(0, 300)]) == {0, 1, 2, 3}
    assert set(asked.samples.labels[asked.rows(1, 300)]) == {0, 1, 2, 3, 4}
    assert benchmark(f"folder:{tmp_path / 'own'}@3").windows == 1
    assert benchmark(f"folder:{tmp_path / 'own'}@9").windows == 0


@pytest.mark.parametrize("part", ["test", "validation"])
@pytest.mark.parametrize("below", ["train", "."])
def test_a_part_of_the_folder_is_held_out(tmp_path: Path, below: str, part: str) -> None:
    write_pictures(tmp_path / below)
    write_pictures(tmp_path / part, count=3)
    folder = benchmark(f"folder:{tmp_path}")
    material = folder.load(Origin())
    assert np.bincount(material.train.labels).tolist() == [10] * 3
    assert np.bincount(material.held_out.labels).tolist() == [3] * 3


def test_pictures_of_any_shape_get_one_size(tmp_path: Path) -> None:
    write_pictures(tmp_path)
    wide = Image.new("L", (60, 20), 0)
    wide.paste(255, (20, 0, 40, 20))  # only the middle is white
    wide.save(tmp_path / "blue" / "wide.png")
    sizes = {
        pixels: benchmark(f"folder:{tmp_path}").load(Origin(pixels=pixels)).train.inputs.shape[2:]
        for pixels in (None, 8)
    }
    assert sizes == {None: (224, 224), 8: (8, 8)}
    material = benchmark(f"folder:{tmp_path}").load(Origin(pixels=8))
    every = np.concatenate((material.train.inputs, material.held_out.inputs))
    assert (every.min((1, 2, 3)) > 200).sum() == 1  # cut around the middle


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_texts_come_from_a_table(tmp_path: Path, suffix: str) -> None:
    write_texts(tmp_path / f"train.{suffix}", (10, 9, 2))
    write_texts(tmp_path / f"test.{suffix}", (2, 9, 10), count=2)
    folder = benchmark(f"folder:{tmp_path}")
    assert folder.modality is Modality.TEXT
    material = folder.load(Origin(encode=lambda texts: np.array([[len(t)] for t in texts])))
    # numbers are ordered by value: 2, 9, 10
    assert material.train.labels[:3].tolist() == [2, 1, 0]
    assert material.held_out.labels[:3].tolist() == [0, 1, 2]
    assert material.train.inputs[:3, 0].tolist() == [len("text 0, about 10"), 15, 15]


def spoil(folder: Path, name: str) -> None:
    """Make one of the mistakes that users make."""
    if name not in ("missing", "empty", "texts"):
        write_pictures(folder, count=2 if name == "few" else 10)
    if name == "one class":
        for other in ("green", "red"):
            (folder / other).rename(folder / f".{other}")
    elif name == "empty":
        folder.mkdir()
    elif name == "broken":
        (folder / "blue" / "000.png").write_bytes(b"\x89PNG no picture")
    elif name == "mixed":
        write_texts(folder / "train.csv", "ab")
    elif name == "not held out":
        write_pictures(folder / "test", ("blue", "red"))
    elif name == "only held out":
        write_pictures(folder / "test", ("blue", "green", "red", "yellow"))


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ("missing", "there is no folder"),
        ("empty", "no pictures in subfolders and no texts"),
        ("one class", "one class only, 'blue'"),
        ("few", "too few samples of class 'blue' to train on, 2; give 5 or more"),
        ("broken", "000.png: not a picture, or damaged"),
        ("mixed", "both pictures and train.csv"),
        ("not held out", "no held-out samples of class 'green'"),
        ("only held out", "held-out samples of class 'yellow' and none to train on"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path: Path, mistake: str, said: str) -> None:
    spoil(tmp_path / "own", mistake)
    assert said in refused("retrain", f"folder:{tmp_path / 'own'}", "--model", "small-cnn")


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("train.csv", "body,label\nx,1\n", "no column text"),
        ("train.jsonl", '{"text": "x", "label": "a"}\n[1]\n', "line 2: not a JSON object"),
        ("train.jsonl", '{"text": "x"}\n', "line 1: a sample needs"),
        ("train.jsonl", '{"text": "x", "label": 1.5}\n', "line 1: a sample needs"),
        ("train.jsonl", "\n", "no samples"),
    ],
)
def test_a_table_must_have_texts_and_labels(
    tmp_path: Path, file: str, content: str, said: str
) -> None:
    (tmp_path / file).write_text(content)
    with pytest.raises(InputError, match=said):
        benchmark(f"folder:{tmp_path}")


@pytest.mark.parametrize("name", ["folder:", "folder:own@0", "folder:own@x", "folder:@2"])
def test_a_name_says_how_it_is_written(name: str) -> None:
    with pytest.raises(InputError, match="folder:PATH@N"):
        benchmark(name)


def test_a_model_is_retrained_on_own_samples(tmp_path: Path) -> None:
    write_pictures(tmp_path / "own", (*FIVE, "f"), count=20)
    options = ("--model", "support.tiny_model:Tiny", "--epochs", "2", "--windows", "1")
    answer = answered("retrain", f"folder:{tmp_path / 'own'}", *options)
    assert answer["source"] == f"{tmp_path / 'own'}, 96 samples to train on, 24 held out"
    assert answer["rows"][0]["classes"] == 4
