"""`hf:FOLDER_OR_ID`: image and text classifiers as Hugging Face publishes them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from migrator.core.errors import InputError
from migrator.learn.image_model import ImageModel, is_normalisation
from migrator.learn.model import Inputs, Modality, damaged
from migrator.learn.model_folder import ModelFolder, model_folder, trusts_remote_code
from migrator.learn.registry import transformers
from migrator.learn.tokens import TOKENS
from migrator.learn.torch_model import TextModel, TorchModel

PREFIX = "hf:"
_TASKS = {
    "ForImageClassification": Modality.IMAGES,
    "ForImageClassificationWithTeacher": Modality.IMAGES,
    "ForMaskedImageModeling": Modality.IMAGES,
    "ForSequenceClassification": Modality.TEXT,
    "ForMaskedLM": Modality.TEXT,
}
"""Tasks of a folder whose network this one begins with; other heads are replaced."""
_ANY_TASK = ("Model", "ForPreTraining", "Backbone")
_AUTO = {
    Modality.IMAGES: "AutoModelForImageClassification",
    Modality.TEXT: "AutoModelForSequenceClassification",
}
_INTERPOLATIONS = {0: "nearest-exact", 2: "bilinear", 3: "bicubic"}
"""By the numbers that Pillow gives them."""
_WORDS = ("tokenizer.json", "vocab.*", "*.model")
"""Files with the words of a tokenizer."""
_NOT_CROPPED = 384
"""From this side on, processors with `crop_pct` resize without cropping."""
_MOST_CLASSES = 10**6
_PROCESSORS = ("preprocessor", "processor")


def hf_class(name: str) -> type[TorchModel]:
    """The class of the model called `name`; reads config.json only."""
    folder = model_folder(name.removeprefix(PREFIX), "hf:FOLDER")
    images = _modality(name, folder) is Modality.IMAGES
    about = {"name": name, "summary": folder.origin, "folder": folder}
    base: type[TorchModel] = HfImages if images else HfText
    return type(name, (base,), about)


class HfImages(ImageModel):
    """An image classifier of transformers that reads pictures as its image processor does."""

    learning_rate = 3e-4
    least_pixels = 8
    folder: ClassVar[ModelFolder]

    def __init__(self, network: nn.Module, classes: int, seed: int, pixels: int) -> None:
        super().__init__(network, classes, seed, pixels)
        self.head = _head(network, classes)

    @classmethod
    def build(cls, classes: int, seed: int, pixels: int | None = None) -> Self:
        """A new model for images of the processor's size unless another one is given."""
        _read_processor(cls)
        built = super().build(classes, seed, pixels)
        fixed = getattr(built.network.config, "image_size", built.pixels)
        if pixels is not None or fixed not in (built.pixels, [built.pixels] * 2):
            built.require_size()
        return built

    @classmethod
    def network_of(cls, classes: int) -> nn.Module:
        return _new_network(cls.folder, Modality.IMAGES, classes)

    def load_pretrained(self) -> None:
        _load_weights(self, self.folder)

    def image_logits(self, images: Tensor) -> Tensor:
        output: Tensor = self.network(pixel_values=images).logits
        return output


@dataclass(frozen=True)
class _Encoding:
    """How a folder's tokenizer turns texts into token numbers."""

    tokenizer: Any
    length: int
    padding: int
    vocabulary: int


class HfText(TextModel):
    """A text classifier of transformers that reads the tokens of its tokenizer."""

    learning_rate = 5e-5
    folder: ClassVar[ModelFolder]

    def __init__(self, network: nn.Module, classes: int, seed: int) -> None:
        super().__init__(network, classes, seed)
        self.head = _head(network, classes)
        encoding = _encoding(self.folder)
        self.vocabulary, self.padding, self._length = (
            encoding.vocabulary,
            encoding.padding,
            encoding.length,
        )
        config: Any = network.config
        if getattr(config, "pad_token_id", None) is None:
            config.pad_token_id = encoding.padding  # decoders find the last token of a text by it

    @classmethod
    def network_of(cls, classes: int) -> nn.Module:
        return _new_network(cls.folder, Modality.TEXT, classes)

    @classmethod
    def encode(cls, texts: Iterable[str]) -> NDArray[np.int32]:
        """One row of token numbers per text, cut off or filled up to the model's length."""
        encoding, given = _encoding(cls.folder), list(texts)
        if not given:
            return np.empty((0, encoding.length), np.int32)
        rows = encoding.tokenizer(
            given,
            padding="max_length",
            truncation=True,
            max_length=encoding.length,
            padding_side="right",
        )["input_ids"]
        return np.array(rows, dtype=np.int32).reshape(-1, encoding.length)

    def load_pretrained(self) -> None:
        _load_weights(self, self.folder)

    def example(self, batch: int) -> Inputs:
        size = (batch, self._length)
        tokens = np.random.default_rng(0).integers(0, self.vocabulary, size, dtype=np.int32)
        return np.where(tokens == self.padding, (self.padding + 1) % self.vocabulary, tokens)


def _modality(name: str, folder: ModelFolder) -> Modality:
    """By the architecture in config.json; where that fits several tasks, by the other files."""
    architectures = folder.config().get("architectures") or ["Model"]
    if not isinstance(architectures, list):
        raise InputError(
            f"{folder.path}: architectures in its config.json is not a list; copy it again"
        )
    architecture = str(architectures[0])
    for ending, modality in _TASKS.items():
        if architecture.endswith(ending):
            return modality
    if architecture.endswith(_ANY_TASK):
        if (folder.path / "preprocessor_config.json").exists():
            return Modality.IMAGES
        if any(folder.path.glob("tokenizer*")) or any(folder.path.glob("vocab*")):
            return Modality.TEXT
        raise InputError(
            f"{folder.path}: neither an image processor nor a tokenizer is beside config.json; "
            "save it there with save_pretrained()"
        )
    task = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", architecture.partition("For")[2]).lower()
    raise InputError(
        f"model: {name} is {architecture}, for {task or 'another task'}; name a model for image "
        "or text classification"
    )


def _options() -> dict[str, Any]:
    return {"local_files_only": True, "trust_remote_code": trusts_remote_code()}


@contextmanager
def _reading(folder: ModelFolder, what: str) -> Iterator[None]:
    """Turn what transformers raises for a folder that it cannot read into one sentence."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        said = str(error).strip().partition("\n")[0][:200]
        raise InputError(
            f"{folder.path}: its {what} cannot be read ({type(error).__name__}: {said}); save it "
            "there again with save_pretrained()"
        ) from error


def _config(folder: ModelFolder) -> Any:
    raw, library = folder.config(), transformers()
    kind, remote = raw.get("model_type"), trusts_remote_code()
    if (not isinstance(kind, str) or kind not in library.CONFIG_MAPPING) and not (
        remote and "auto_map" in raw
    ):
        own = "auto_map" in raw
        then = "set MIGRATOR_TRUST_REMOTE_CODE=1 if you trust its code" if own else "update it"
        raise InputError(
            f"{folder.path}: transformers {library.__version__} does not know the model type "
            f"{kind!r}; {then}, or name another model"
        )
    if isinstance(raw.get("num_labels"), int) and raw["num_labels"] > _MOST_CLASSES:
        # transformers makes up a name for every one of them
        raise InputError(
            f"{folder.path}: its config.json is for {raw['num_labels']} classes; correct "
            f"num_labels, up to {_MOST_CLASSES}"
        )
    with _reading(folder, "config.json"):
        return library.AutoConfig.from_pretrained(folder.path, **_options())


def _new_network(folder: ModelFolder, modality: Modality, classes: int) -> nn.Module:
    library = transformers()
    config = _config(folder)
    config.num_labels = classes
    auto = getattr(library, _AUTO[modality])
    with _reading(folder, f"network for the classification of {modality}"):
        built: nn.Module = auto.from_config(config, trust_remote_code=trusts_remote_code())
    return built.float()  # trainings need it, also where the folder's weights are of 16 bits


def _head(network: nn.Module, classes: int) -> tuple[str, ...]:
    """The tensors outside the base network with a row per class."""
    base = f"{getattr(network, 'base_model_prefix', '')}."
    return tuple(
        name
        for name, tensor in network.state_dict().items()
        if not name.startswith(base) and tensor.ndim and tensor.shape[0] == classes
    )


def _load_weights(model: TorchModel, folder: ModelFolder) -> None:
    folder.require_weights()
    library = transformers()
    auto, classes = getattr(library, _AUTO[model.modality]), _config(folder).num_labels
    library.utils.logging.disable_progress_bar()
    os.environ.setdefault("HF_DEACTIVATE_ASYNC_LOAD", "1")  # threads do not survive a fork
    said = library.utils.logging.get_verbosity()
    library.utils.logging.set_verbosity_error()  # it reports a replaced head at length
    try:
        theirs, info = auto.from_pretrained(
            folder.path,
            dtype=torch.float32,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            **_options(),
        )
    except InputError:
        raise
    except Exception as error:
        raise damaged(folder.path) from error
    finally:
        library.utils.logging.set_verbosity(said)
    _require_fitting(theirs, info, folder)
    head = _head(theirs, classes)
    trained = classes > 1 and not set(head) & set(info["missing_keys"])
    usable = classes if trained and _chooses_one(theirs.config) else None
    model.begin_from(theirs.state_dict(), usable, folder.origin, folder.path)


def _require_fitting(theirs: Any, info: Any, folder: ModelFolder) -> None:
    """A missing head or pooler is common; anything else belongs to another network."""
    if info["mismatched_keys"]:
        name, shape, expected = next(iter(info["mismatched_keys"]))
        raise InputError(
            f"{folder.path}: {name} is of shape {tuple(shape)} in its weights and "
            f"{tuple(expected)} by its config.json; save both again with save_pretrained()"
        )
    base = f"{theirs.base_model_prefix}."
    missing = [key for key in info["missing_keys"] if key.startswith(base) and "pooler" not in key]
    if missing:
        raise InputError(
            f"{folder.path}: {len(missing)} tensors of its network, such as {sorted(missing)[0]}, "
            "are not among its weights; copy all of its files"
        )


def _chooses_one(config: Any) -> bool:
    return getattr(config, "problem_type", None) in (None, "single_label_classification")


def _read_processor(kind: type[HfImages]) -> None:
    """Take size, mean, deviation and resampling over from the folder's image processor."""
    folder, library = kind.folder, transformers()
    _config(folder)
    if not any((folder.path / f"{part}_config.json").exists() for part in _PROCESSORS):
        raise InputError(
            f"{folder.path}: holds no preprocessor_config.json; save the model's image processor "
            "there with save_pretrained()"
        )
    with _reading(folder, "image processor"):
        processor = library.AutoImageProcessor.from_pretrained(folder.path, **_options())
        scale = 1 / processor.rescale_factor if processor.do_rescale else 1.0
        normal = bool(processor.do_normalize)
        kind.mean = tuple(scale * value for value in processor.image_mean) if normal else (0.0,) * 3
        kind.spread = (
            tuple(scale * value for value in processor.image_std) if normal else (scale,) * 3
        )
        kind.interpolation = _INTERPOLATIONS.get(int(processor.resample or 2), "bilinear")
        kind.own_pixels, kind.crop = _sides(processor)
        if not is_normalisation(kind.mean, kind.spread):
            raise ValueError("image_mean and image_std are not three usable numbers each")


def _sides(processor: Any) -> tuple[int, float]:
    """The side of the network's images, and which part of a resized picture they are."""

    def side(size: Any) -> int:
        sides = {key: value for key, value in dict(size or {}).items() if value}
        if len({*sides.values()}) != 1:
            raise ValueError(f"images of size {sides} are not square")
        return int(next(iter(sides.values())))

    whole = side(processor.size)
    crops = bool(getattr(processor, "do_center_crop", False))
    part = getattr(processor, "crop_pct", None)
    if crops:
        return side(processor.crop_size), min(1.0, side(processor.crop_size) / whole)
    if part and whole < _NOT_CROPPED:
        return whole, whole / int(whole / part)
    return whole, 1.0


@cache
def _encoding(folder: ModelFolder) -> _Encoding:
    config = _config(folder)
    # without its files transformers makes up a tokenizer that knows no word
    if not any(path for kind in _WORDS for path in folder.path.glob(kind)):
        raise InputError(
            f"{folder.path}: holds no tokenizer; save the model's tokenizer there with "
            "save_pretrained()"
        )
    with _reading(folder, "tokenizer"):
        tokenizer = transformers().AutoTokenizer.from_pretrained(folder.path, **_options())
        positions = getattr(config, "max_position_embeddings", None) or TOKENS
        length = int(min(TOKENS, tokenizer.model_max_length, positions))
        if length < 1:
            raise ValueError(f"texts of {length} tokens")
        vocabulary = int(config.vocab_size)
        highest = max(tokenizer.get_vocab().values())
    if tokenizer.pad_token_id is None:
        raise InputError(
            f"{folder.path}: its tokenizer has no padding token; set pad_token and save it again"
        )
    if highest >= vocabulary:
        raise InputError(
            f"{folder.path}: its tokenizer has tokens up to {highest} and its network reads "
            f"{vocabulary}; copy the tokenizer that belongs to the network"
        )
    return _Encoding(tokenizer, length, int(tokenizer.pad_token_id), vocabulary)
