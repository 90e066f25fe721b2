"""Pre-training without labels: masked words and rotations, and the verb that does it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from support.own_samples import write_pictures
from support.small_models import save_bert
from typer.testing import CliRunner

from migrator.cli import app
from migrator.core.errors import InputError
from migrator.io.files import knows_classes
from migrator.learn.pretraining import PretrainingSettings, pretrain, unlabelled_inputs
from migrator.learn.registry import build, model_class
from migrator.learn.torch_model import TorchModel


def texts_in(path: Path) -> Path:
    """Texts of one word."""
    path.write_text("the dog dog dog dog dog dog dog dog\n" * 64, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model") / "bert"
    save_bert(folder)
    return f"hf:{folder}"


def torch_model(name: str, classes: int = 2) -> TorchModel:
    model = build(name, classes, 0, pretrained=False)
    assert isinstance(model, TorchModel)
    return model


def test_masked_words_are_learned(bert: str, tmp_path: Path) -> None:
    modality = model_class(bert).modality
    inputs, _ = unlabelled_inputs(str(texts_in(tmp_path / "t.txt")), bert, modality, None, None)
    model = torch_model(bert)
    before = {name: each.clone() for name, each in model.network.state_dict().items()}
    found = pretrain(model, inputs, PretrainingSettings(epochs=20, batch=32, learning_rate=1e-2))
    assert found.task == "masked words"
    assert found.steps == 40
    assert found.last_loss < 0.5 * found.first_loss
    after = model.network.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before if "classifier" in name)
    assert not torch.equal(
        *(each["bert.embeddings.word_embeddings.weight"] for each in (before, after))
    )


def test_long_texts_are_used_whole(bert: str, tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    path.write_text(json.dumps({"text": "the cat " * 100}) + "\n", encoding="utf-8")
    inputs, source = unlabelled_inputs(str(path), bert, model_class(bert).modality, None, None)
    assert len(inputs) == 3
    assert source == str(path)


def test_rotations_are_learned_from_pictures_without_labels() -> None:
    ramp = np.arange(32, dtype=np.uint8)[:, None] * np.ones((1, 32), np.uint8) * 8
    pictures = np.broadcast_to(ramp, (64, 3, 32, 32)).copy()  # bright at the bottom
    settings = PretrainingSettings(12, 32, learning_rate=1e-2)
    found = pretrain(torch_model("small-cnn"), pictures, settings)
    assert found.task == "rotations"
    assert found.last_loss < 0.7 * found.first_loss


def test_the_same_seed_gives_the_same_weights() -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (40, 3, 32, 32), dtype=np.uint8)
    one, other = (torch_model("small-cnn") for _ in range(2))
    for each in (one, other):
        pretrain(each, pictures, PretrainingSettings(1, 16, seed=5))
    theirs = other.network.state_dict()
    assert all(torch.equal(each, theirs[name]) for name, each in one.network.state_dict().items())


def test_a_file_tells_whether_its_weights_know_classes(tmp_path: Path) -> None:
    model, path = torch_model("small-cnn"), tmp_path / "w.safetensors"
    model.save(path)
    assert not knows_classes(path)
    model.train_step(model.example(4), np.array([0, 1, 0, 1]), 1e-3)
    model.save(path)
    assert knows_classes(path)
    path.write_bytes(b"damaged")
    assert knows_classes(path)  # whoever loads it says what is wrong


def test_the_limit_ends_it_early() -> None:
    pictures = np.zeros((64, 3, 32, 32), np.uint8)
    found = pretrain(
        torch_model("small-cnn"), pictures, PretrainingSettings(10**6, 32, limit_s=0.3)
    )
    assert 0 < found.steps < 10**5


def test_retraining_begins_with_the_pretrained_weights(tmp_path: Path) -> None:
    own, out = write_pictures(tmp_path / "own"), tmp_path / "w.safetensors"
    run = CliRunner().invoke
    words = ["pretrain", str(own), "--model", "small-cnn", "--epochs", "1", "--batch", "8"]
    done = run(app, [*words, "--pixels", "32", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "rotations" in done.stdout
    course = ["retrain", f"folder:{own}", "--model", "small-cnn", "--windows", "0", "--epochs", "1"]
    done = run(app, [*course, "--weights", str(out), "--json"])
    assert done.exit_code == 0, done.output
    assert "w.safetensors" in json.loads(done.stdout)["weights"]


@pytest.mark.parametrize(
    ("source", "model", "said"),
    [
        ("missing.txt", "bert-base", "neither a benchmark nor a readable text file"),
        ("missing", "small-cnn", "neither a benchmark nor a folder of pictures"),
        ("nc-20-newsgroups", "small-cnn", "consists of text"),
    ],
)
def test_a_wrong_source_is_one_sentence(source: str, model: str, said: str, tmp_path: Path) -> None:
    path = source if source.startswith("nc-") else str(tmp_path / source)
    with pytest.raises(InputError, match=said):
        unlabelled_inputs(path, model, model_class(model).modality, None, None)


def test_models_without_a_place_for_the_task_are_refused() -> None:
    with pytest.raises(InputError, match="masked words need a text model"):
        pretrain(torch_model("small-text"), np.ones((40, 128), np.int32), PretrainingSettings())
    with pytest.raises(InputError, match="too few"):
        pretrain(
            torch_model("small-cnn"), np.zeros((3, 3, 32, 32), np.uint8), PretrainingSettings()
        )
