"""`hf:` models: logits of the library itself, heads, round trips, and what is refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from support.small_models import SENTENCE, WORDS, save_bert, save_convnext, save_vit, train_copy

from migrator.core.errors import InputError
from migrator.learn.hf_models import HfImages, HfText
from migrator.learn.model import Modality
from migrator.learn.registry import build, encoder, model_class, transformers
from migrator.serving.workers.forkserver_process import model_interface
from migrator.serving.workers.messages import ModelSpec

Save = Callable[..., Any]


def pictures(side: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(1).integers(0, 256, (2, 3, side, side), dtype=np.uint8)


def built(folder: Path, classes: int = 3, **options: Any) -> HfImages:
    model = build(f"hf:{folder}", classes, 0, **options)
    assert isinstance(model, HfImages)
    return model


def built_text(folder: Path, classes: int = 3) -> HfText:
    model = build(f"hf:{folder}", classes, 0)
    assert isinstance(model, HfText)
    return model


@pytest.mark.parametrize(
    ("save", "side", "close"), [(save_vit, 32, 1e-6), (save_convnext, 50, 1e-2)]
)
def test_scores_are_those_of_the_library(
    save: Save, side: int, close: float, tmp_path: Path
) -> None:
    network = save(tmp_path)
    processor = transformers().AutoImageProcessor.from_pretrained(tmp_path)
    images = [torch.from_numpy(picture) for picture in pictures(side)]
    with torch.inference_mode():
        wanted = network(**processor(images, return_tensors="pt")).logits.numpy()
    model = built(tmp_path)
    np.testing.assert_allclose(model.infer(pictures(side)), wanted, atol=close)
    assert model.weights == f"the folder {tmp_path.name}"
    assert model.seen.all()


def test_texts_get_the_scores_of_the_library(tmp_path: Path) -> None:
    network = save_bert(tmp_path)
    texts = [SENTENCE, "a dog " * 100, ""]
    tokenizer = transformers().AutoTokenizer.from_pretrained(tmp_path)
    given = tokenizer(texts, padding=True, truncation=True, max_length=64, return_tensors="pt")
    with torch.inference_mode():
        wanted = network(**given).logits.numpy()
    name = f"hf:{tmp_path}"
    tokens = encoder(name, Modality.TEXT)(texts)
    assert tokens.shape == (3, 64)
    assert tokens.dtype == np.int32
    np.testing.assert_allclose(built_text(tmp_path).infer(tokens), wanted, atol=1e-6)


def test_the_server_learns_the_size_of_the_vocabulary(tmp_path: Path) -> None:
    save_bert(tmp_path)
    kind = model_interface("texts", built_text(tmp_path), ModelSpec("hf:net", 3))
    assert (kind.datatype, kind.shape, kind.values) == ("INT32", (64,), len(WORDS))
    example = built_text(tmp_path).example(50)
    assert example.max() < len(WORDS)
    assert 0 not in example


@pytest.mark.parametrize("save", [save_vit, save_bert])
def test_a_copy_trains_and_its_weights_come_back(save: Save, tmp_path: Path) -> None:
    save(tmp_path)
    again: Any = build(f"hf:{tmp_path}", 3, 1, pretrained=False)
    assert again.weights == "random, seed 1"
    losses = train_copy(build(f"hf:{tmp_path}", 3, 0), again, tmp_path / "trained", 1e-2, 5)
    assert losses[-1] < losses[0]
    assert again.weights == f"the folder {tmp_path.name}"


def test_a_head_for_more_classes_keeps_the_old_rows(tmp_path: Path) -> None:
    save_bert(tmp_path)
    three: Any = build(f"hf:{tmp_path}", 3, 0)
    five: Any = build(f"hf:{tmp_path}", 5, 0)
    assert five.weights == f"the folder {tmp_path.name}, head extended from 3 classes"
    assert five.seen.tolist() == [True] * 3 + [False] * 2
    inputs = three.example(2)
    np.testing.assert_allclose(five.infer(inputs)[:, :3], three.infer(inputs), atol=1e-6)
    five.train_step(inputs, np.array([3, 4]), 1e-3)
    assert np.isfinite(five.infer(inputs)).all()


def test_the_modality_is_known_without_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_bert(tmp_path)
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert model_class(f"hf:{tmp_path}").modality is Modality.TEXT
    with pytest.raises(InputError, match=r"needs transformers.*install 'migrator-gpu\[learn\]'"):
        build(f"hf:{tmp_path}", 3, 0)


def _config(folder: Path, name: str = "config.json", **changes: object) -> None:
    file = folder / name
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def _pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def _cut(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])


FIVE: dict[str, Any] = {
    "id2label": {str(label): f"L{label}" for label in range(5)},
    "label2id": {f"L{label}": label for label in range(5)},
}
PROCESSOR = "preprocessor_config.json"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "model.safetensors").unlink(), "holds no weights; put"),
        (lambda folder: (folder / "config.json").unlink(), "holds no config.json; name"),
        (_pickled, r"its weights are pickled \(pytorch_model.bin\).*save them as safetensors"),
        (_cut, "damaged or not a safetensors file"),
        (lambda folder: _config(folder, **FIVE), r"classifier\.\w+ is of shape \(3.* and \(5"),
        (lambda folder: _config(folder, num_hidden_layers=2), "are not among its weights"),
        (
            lambda folder: _config(folder, architectures=["ViTForObjectDetection"]),
            "object detection",
        ),
        (lambda folder: _config(folder, model_type="new"), "does not know the model type 'new'"),
        (
            lambda folder: _config(folder, model_type="new", auto_map={"AutoConfig": "c.C"}),
            "set MIGRATOR_TRUST_REMOTE_CODE=1",
        ),
        (lambda folder: (folder / PROCESSOR).write_text("{"), "image processor cannot"),
        (lambda folder: _config(folder, PROCESSOR, image_mean=[0.5]), "not three usable numbers"),
        (
            lambda folder: _config(folder, id2label=None, label2id=None, num_labels=10**9),
            "for 1000000000 classes; correct num_labels",
        ),
    ],
)
def test_a_folder_that_cannot_be_used_is_refused_in_one_sentence(
    damage: Callable[[Path], object], said: str, tmp_path: Path
) -> None:
    save_vit(tmp_path)
    damage(tmp_path)
    with pytest.raises(InputError, match=said) as refused:
        build(f"hf:{tmp_path}", 3, 0)
    assert "\n" not in str(refused.value)


def test_a_tokenizer_without_files_is_refused(tmp_path: Path) -> None:
    save_bert(tmp_path)
    for path in tmp_path.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(InputError, match="holds no tokenizer; save"):
        build(f"hf:{tmp_path}", 3, 0)


def test_images_of_another_size_than_the_network_reads_are_refused(tmp_path: Path) -> None:
    save_vit(tmp_path)
    with pytest.raises(InputError, match="side 48; leave the size out for 32"):
        built(tmp_path, pixels=48)
    _config(tmp_path, image_size=40)
    with pytest.raises(InputError, match="cannot read images of side 32"):
        built(tmp_path)


@pytest.mark.parametrize("name", ["hf:/no/such/folder", "hf:", "hf:./here"])
def test_a_folder_that_does_not_exist_is_named(name: str) -> None:
    with pytest.raises(InputError, match=f"there is no folder '{name.removeprefix('hf:')}'"):
        model_class(name)


def test_quantised_weights_are_refused(tmp_path: Path) -> None:
    save_vit(tmp_path)
    file = tmp_path / "model.safetensors"
    whole = load_file(file)
    save_file(
        {name: tensor.to(torch.int8) for name, tensor in whole.items()}, file, {"format": "pt"}
    )
    with pytest.raises(InputError, match=r"its weights are quantised \(.*\.weight is I8\)"):
        built(tmp_path)
    save_file(whole, file, {"format": "pt"})
    _config(tmp_path, quantization_config={"quant_method": "gptq", "bits": 4})
    with pytest.raises(InputError, match=r"its weights are quantised \(by gptq\)"):
        built(tmp_path)


def test_weights_in_parts_lie_in_the_folder_and_none_is_missing(tmp_path: Path) -> None:
    save_vit(tmp_path).save_pretrained(tmp_path, max_shard_size="5KB")
    (tmp_path / "model.safetensors").unlink()
    assert built(tmp_path).seen.all()
    index = tmp_path / "model.safetensors.index.json"
    listed = json.loads(index.read_text())
    parts = sorted(set(listed["weight_map"].values()))
    assert len(parts) > 1
    outside = tmp_path.parent / "outside.safetensors"
    (tmp_path / parts[1]).rename(outside)
    with pytest.raises(InputError, match=f"lacks {parts[1]}, a part of its weights; copy it"):
        built(tmp_path)
    for name in (str(outside), f"../{outside.name}"):
        other = {k: name if v == parts[1] else v for k, v in listed["weight_map"].items()}
        index.write_text(json.dumps(listed | {"weight_map": other}))
        with pytest.raises(InputError, match="outside of its folder"):
            built(tmp_path)
