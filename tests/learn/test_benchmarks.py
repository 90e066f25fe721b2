"""Benchmarks: which window sees what, and every form their files come in."""

from __future__ import annotations

import io
import json
import lzma
import pickle
import random
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from migrator.core.errors import InputError
from migrator.learn.benchmarks.benchmark import (
    VARIABLE,
    Material,
    Origin,
    limit_samples,
    reorder_classes,
    window_data,
)
from migrator.learn.registry import benchmark, benchmarks

SYNTHETIC = benchmark("nc-synthetic")
CIFAR = benchmark("nc-cifar-10")


@pytest.fixture(scope="module")
def synthetic_samples() -> Material:
    return SYNTHETIC.load(Origin(seed=3))


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def test_the_papers_benchmarks_have_its_windows() -> None:
    windows = {name: one_benchmark.windows for name, one_benchmark in benchmarks().items()}
    assert windows == {"nc-cifar-10": 4, "nc-core50": 9, "nc-20-newsgroups": 9, "nc-synthetic": 4}
    with pytest.raises(InputError, match="did you mean nc-cifar-10"):
        benchmark("cifar-10")


def test_a_window_sees_its_new_classes_and_a_memory_of_the_old(synthetic_samples: Material) -> None:
    first = window_data(SYNTHETIC, synthetic_samples, 0, memory=10, seed=0)
    assert len(first.replay) == 0
    assert set(first.new.labels) == {0, 1} == first.new_classes
    third = window_data(SYNTHETIC, synthetic_samples, 2, memory=10, seed=0)
    assert third.new_classes == {4, 5}
    assert set(np.unique(third.replay.labels)) == {0, 1, 2, 3}
    assert np.bincount(third.replay.labels).tolist() == [10] * 4
    assert (third.replay.arrives < 2).all()
    assert set(third.held_out.labels) == set(range(6))
    again = window_data(SYNTHETIC, synthetic_samples, 2, memory=10, seed=0)
    np.testing.assert_array_equal(again.replay.inputs, third.replay.inputs)
    # classes that drift are judged as they look now
    assert (third.held_out.arrives == 2).all()
    assert set(third.held_out_new.labels) == {4, 5}
    assert len(third.training) == len(third.new) + 40


def test_a_limit_is_per_class_and_scenario(synthetic_samples: Material) -> None:
    few = limit_samples(synthetic_samples, 7, seed=0)
    rows = few.train.labels[few.train.arrives == 3]
    assert np.bincount(rows).tolist() == [7] * 8
    assert limit_samples(synthetic_samples, None, seed=0) is synthetic_samples


# the public originals, small


def pictures(count: int) -> Any:
    return np.random.default_rng(0).integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)


def cifar_batches(folder: Path) -> Path:
    inside = folder / "cifar-10-batches-py"
    inside.mkdir()
    for number, name in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]):
        data = pictures(10).reshape(10, -1) // (number + 1)
        entry = {b"data": data, b"labels": list(range(10)), b"batch_label": name.encode()}
        (inside / name).write_bytes(pickle.dumps(entry, protocol=2))
    return inside


def packed(folder: Path, name: str, classes: int, form: str, side: int) -> None:
    blobs, labels, held = [], [], []
    for at in range(2 * classes):
        file = io.BytesIO()
        Image.fromarray(np.full((side, side, 3), at, np.uint8)).save(file, form, lossless=True)
        blobs.append(file.getvalue())
        labels.append(at % classes)
        held.append(at >= classes)
    offsets = np.cumsum([0, *map(len, blobs)])
    blob = np.frombuffer(b"".join(blobs), np.uint8)
    np.savez(folder / name, blob=blob, offsets=offsets, label=labels, is_test=held)


def test_cifar_is_read_from_its_batches_packed_or_not(tmp_path: Path) -> None:
    inside = cifar_batches(tmp_path)
    unpacked = CIFAR.load(Origin(tmp_path))
    assert (len(unpacked.train), len(unpacked.held_out)) == (50, 10)
    np.testing.assert_array_equal(unpacked.train.inputs[:10], pictures(10))
    np.testing.assert_array_equal(unpacked.held_out.inputs, pictures(10) // 6)
    assert unpacked.train.arrives[:10].tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    other = tmp_path / "other"
    other.mkdir()
    with tarfile.open(other / "cifar-10-python.tar.gz", "w:gz") as archive:
        archive.add(inside, inside.name)
    archived = CIFAR.load(Origin(other))
    np.testing.assert_array_equal(archived.train.inputs, unpacked.train.inputs)


def test_a_batch_file_runs_nothing(tmp_path: Path) -> None:
    inside = cifar_batches(tmp_path)
    (inside / "data_batch_2").write_bytes(pickle.dumps({b"data": print}))
    with pytest.raises(InputError, match="not a set of CIFAR-10 python batches, or damaged"):
        CIFAR.load(Origin(tmp_path))


@pytest.mark.parametrize("kind", ["batch", "archive", "packed"])
def test_whatever_happens_to_a_file_is_one_sentence(tmp_path: Path, kind: str) -> None:
    """Cut off or with bits turned over, it is read or refused, and nothing else."""
    inside = cifar_batches(tmp_path)
    place = tmp_path / "place"
    place.mkdir()
    if kind == "batch":
        place, path = tmp_path, inside / "data_batch_2"
    elif kind == "archive":
        path = place / "cifar-10-python.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            archive.add(inside, inside.name)
    else:
        path = place / "cifar10_subset_12k_webp.npz"
        packed(place, path.name, 10, "PNG", 32)
    whole, draw = path.read_bytes(), random.Random(1)
    refused = 0
    for _ in range(8):
        damaged = bytearray(whole)
        for _ in range(4):
            damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged[: draw.randrange(len(damaged) // 2, 2 * len(damaged))])
        try:
            CIFAR.load(Origin(place))
        except InputError:
            refused += 1
    assert refused > 1


def test_packed_pictures_are_found_where_the_variable_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sets").mkdir()
    packed(tmp_path / "sets", "cifar10_subset_12k_webp.npz", 10, "WEBP", 32)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    material = CIFAR.load(Origin())
    assert (material.train.inputs[7] == 7).all()
    assert (material.held_out.inputs[7] == 17).all()
    assert material.source == "cifar10_subset_12k_webp.npz"


def test_the_stand_in_for_core50_says_that_it_is_one(tmp_path: Path) -> None:
    packed(tmp_path, "tinyimagenet_50class_10k_jpeg.npz", 50, "PNG", 64)
    material = benchmark("nc-core50").load(Origin(tmp_path))
    assert "in place of CORe50" in material.source
    assert material.train.inputs.shape == (50, 3, 64, 64)


def test_core50_is_read_from_its_folders(tmp_path: Path) -> None:
    for session in ("s1", "s3"):
        for thing in range(1, 51):
            film = tmp_path / "core50_128x128" / session / f"o{thing}"
            film.mkdir(parents=True)
            for frame in range(2 if thing == 1 else 1):
                pixels = np.full((128, 128, 3), thing, np.uint8)
                Image.fromarray(pixels).save(film / f"C_01_{thing:02d}_{frame:03d}.png")
    material = benchmark("nc-core50").load(Origin(tmp_path))
    # neighbouring frames look alike: of these two one is used; session 3 is held out
    assert (len(material.train), len(material.held_out)) == (50, 50)
    assert (material.train.inputs[material.train.labels == 9] == 10).all()
    (tmp_path / "core50_128x128" / "s1" / "o51").mkdir()
    with pytest.raises(InputError, match="o1 to o50"):
        benchmark("nc-core50").load(Origin(tmp_path))


GROUPS = [f"group.{number:02d}" for number in range(20)]


def message(group: str) -> str:
    return f"Subject: {group}\n\nwords of {group} alone\n\n--\nname"


def test_newsgroups_are_the_same_in_every_form(tmp_path: Path) -> None:
    places = [tmp_path / form for form in ("lines", "folder", "archive")]
    for place in places:
        place.mkdir()
    with lzma.open(places[0] / "20news_bydate_full.jsonl.xz", "wt") as lines:
        for part in ("train", "test"):
            for group in GROUPS:
                row = {"s": part, "y": group, "id": "1", "t": message(group)}
                lines.write(json.dumps(row) + "\n")
    root = places[1] / "20news-bydate"
    for part in ("train", "test"):
        for group in GROUPS:
            folder = root / f"20news-bydate-{part}" / group
            folder.mkdir(parents=True)
            (folder / "1").write_text(message(group), encoding="latin-1")
    with tarfile.open(places[2] / "20news-bydate.tar.gz", "w:gz") as archive:
        for folder in sorted(root.iterdir()):
            archive.add(folder, folder.name)
    newsgroups = benchmark("nc-20-newsgroups")
    materials = [newsgroups.load(Origin(path)) for path in places]
    for material in materials:
        assert (len(material.train), len(material.held_out)) == (20, 20)
        by_label = material.train.inputs[np.argsort(material.train.labels)]
        np.testing.assert_array_equal(by_label, materials[0].train.inputs)
        assert (by_label[0] > 0).sum() == 1 + 5  # begin, words of group 00 alone


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("nc-cifar-10", "cifar10_subset_12k_webp.npz"),
        ("nc-core50", "tinyimagenet_50class_10k_jpeg.npz"),
        ("nc-20-newsgroups", "20news_bydate_full.jsonl.xz"),
        ("nc-cifar-10", "cifar-10-python.tar.gz"),
        ("nc-20-newsgroups", "20news-bydate.tar.gz"),
    ],
)
def test_data_that_is_missing_or_damaged_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, file: str
) -> None:
    with pytest.raises(InputError, match="its data is not known; get "):
        benchmark(name).load(Origin())
    with pytest.raises(InputError, match=f"is not under {tmp_path}"):
        benchmark(name).load(Origin(tmp_path))
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(InputError, match=f"where {VARIABLE} points; get .* name that with --data"):
        benchmark(name).load(Origin())
    (tmp_path / file).write_bytes(b"damaged")
    with pytest.raises(InputError, match="or damaged; download it again"):
        benchmark(name).load(Origin())


def test_classes_come_in_another_order_unless_they_drift(
    tmp_path: Path, synthetic_samples: Material
) -> None:
    packed(tmp_path, "cifar10_subset_12k_webp.npz", 10, "PNG", 32)
    material = CIFAR.load(Origin(tmp_path))
    other = reorder_classes(CIFAR, material, seed=1)
    assert sorted(other.train.labels) == list(range(10))
    assert not np.array_equal(other.train.labels, material.train.labels)
    np.testing.assert_array_equal(other.train.labels, other.held_out.labels)
    np.testing.assert_array_equal(other.train.arrives, other.train.labels // 2)
    with pytest.raises(InputError, match="generated in the order of its classes"):
        reorder_classes(SYNTHETIC, synthetic_samples, seed=1)
