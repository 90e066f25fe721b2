"""`timm:NAME`: image networks of timm, by name or in a folder."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from torch import nn

from migrator.core.errors import InputError
from migrator.learn.image_model import ImageModel, is_normalisation
from migrator.learn.model import damaged
from migrator.learn.model_folder import ModelFolder, model_folder
from migrator.learn.registry import timm
from migrator.learn.torch_model import TorchModel, seeded_weights

PREFIX, _FOLDER_FORM = "timm:", "timm:local-dir:FOLDER"


_FOLDERS = ("hf-hub:", "hf_hub:", "local-dir:")
"""Prefixes with which timm names a model of the hub or in a folder."""


def timm_class(name: str) -> type[TorchModel]:
    """The class of the model called `name`; nothing is read yet."""
    wanted = name.removeprefix(PREFIX)
    if not wanted:
        raise InputError("model: a name is missing after timm:, such as timm:resnet18")
    return type(name, (TimmNamed,), {"name": name, "summary": "from timm", "wanted": wanted})


class TimmImages(ImageModel):
    """An image network that timm builds."""

    architecture: ClassVar[str]
    """Its name in timm."""

    def __init__(self, network: nn.Module, classes: int, seed: int, pixels: int) -> None:
        super().__init__(network, classes, seed, pixels)
        about: Any = network.pretrained_cfg
        named = about.get("classifier") or "classifier"
        self.head = named if isinstance(named, str) else tuple(named)

    @classmethod
    def network_of(cls, classes: int) -> nn.Module:
        """The network for any size of images; nothing is downloaded."""
        built: nn.Module = timm().create_model(
            cls.architecture, pretrained=False, num_classes=classes
        )
        return built


@dataclass(frozen=True)
class _Described:
    """A network of timm: how to build it, and how its weights want pictures."""

    architecture: str
    about: dict[str, Any]
    """timm's description, `pretrained_cfg`."""
    folder: ModelFolder | None
    """With the weights, where they are in a folder already."""


class TimmNamed(TimmImages):
    """A network that the user names.

    A name with a tag, as in resnet18.a1_in1k, stands for weights of the hub; one without a tag
    for random weights.
    """

    learning_rate = 5e-4
    least_pixels = 8
    wanted: ClassVar[str]

    @classmethod
    def build(cls, classes: int, seed: int, pixels: int | None = None) -> Self:
        """A new model for images of the published size unless another one is given."""
        described = cls._described()
        about = described.about
        cls.own_pixels = int(about["input_size"][-1])
        cls.mean = tuple(255 * value for value in about["mean"])
        cls.spread = tuple(255 * value for value in about["std"])
        bicubic = about.get("interpolation") == "bicubic"
        cls.interpolation = "bicubic" if bicubic else "bilinear"
        side = cls.side_of(pixels)
        with seeded_weights(seed):
            built = cls(_network(described, classes, side), classes, seed, side)
        if pixels is not None:
            built.require_size()
        return built

    def load_pretrained(self) -> None:
        """Load the weights that the name stands for; none without a tag."""
        described = self._described()
        folder, about = described.folder, described.about
        if folder is None:
            hub = about.get("hf_hub_id")
            if not hub or "." not in self.wanted:
                return
            folder = model_folder(hub, _FOLDER_FORM)
        folder.require_weights()
        file = next(iter(sorted(folder.path.glob("*.safetensors"))))
        classes = int(about["num_classes"])
        try:
            theirs = _network(described, classes, self.pixels, weights=str(file))
        except InputError:
            raise
        except Exception as error:
            raise damaged(file) from error
        self.begin_from(theirs.state_dict(), classes or None, folder.origin, file)

    @classmethod
    def _described(cls) -> _Described:
        library, prefix = (
            timm(),
            next((form for form in _FOLDERS if cls.wanted.startswith(form)), None),
        )
        if prefix is None:
            if not library.is_model(cls.wanted.partition(".")[0]):
                raise _unknown(cls.wanted)
            try:
                about = library.get_pretrained_cfg(cls.wanted, allow_unregistered=False)
            except RuntimeError as error:
                raise _unknown_tag(cls.wanted) from error
            return _Described(cls.wanted, about.to_dict(), None)
        folder = model_folder(cls.wanted.removeprefix(prefix), _FOLDER_FORM)
        config = folder.config()
        architecture, about = config.get("architecture"), config.get("pretrained_cfg")
        if not isinstance(architecture, str) or not isinstance(about, dict):
            raise InputError(
                f"{folder.path}: its config.json is not of timm; use hf: for models of transformers"
            )
        if not library.is_model(architecture):
            raise _unknown(architecture)
        usual = library.get_pretrained_cfg(architecture.partition(".")[0])
        defaults, keys = usual.to_dict(), {field.name for field in fields(usual)}
        classes = config.get("num_classes", about.get("num_classes", 0))
        usable = {key: about[key] for key in about if key in keys}  # later versions add some
        described = {**defaults, **usable, "num_classes": classes}
        _require_usable(described, folder)
        return _Described(architecture, described, folder)


def _require_usable(about: dict[str, Any], folder: ModelFolder) -> None:
    """InputError unless a folder's description has the types that timm writes."""
    sides, classes = about.get("input_size"), about["num_classes"]
    wrong = None
    if not isinstance(classes, int) or classes < 0:
        wrong = "num_classes"
    elif not isinstance(sides, list | tuple) or len(sides) != 3 or not isinstance(sides[-1], int):
        wrong = "input_size"
    elif not isinstance(about.get("classifier", ""), str | list | tuple | None):
        wrong = "classifier"
    elif not is_normalisation(about.get("mean"), about.get("std")):
        wrong = "mean or std"
    if wrong is not None:
        raise InputError(
            f"{folder.path}: {wrong} in its config.json is missing or not usable; copy it again"
        )


def _network(
    described: _Described, classes: int, side: int, weights: str | None = None
) -> nn.Module:
    """The network, with the weights in a file or random ones."""
    about = {**described.about, "file": weights, "hf_hub_id": None, "url": ""}
    more = {}
    if about.get("fixed_input_size") and side != about["input_size"][-1]:
        more = {"img_size": side}  # weights for positions are interpolated
    try:
        built: nn.Module = timm().create_model(
            described.architecture,
            pretrained=weights is not None,
            pretrained_cfg=about,
            num_classes=classes,
            **more,
        )
    except (TypeError, AssertionError, ValueError) as error:
        if not more:
            raise
        raise InputError(
            f"pixels: timm:{described.architecture} cannot read images of side {side}; leave the "
            f"size out for {about['input_size'][-1]}"
        ) from error
    return built


def _unknown(name: str) -> InputError:
    names = timm().list_models()
    near = difflib.get_close_matches(name.partition(".")[0][:100], names, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else "timm.list_models() lists its models"
    return InputError(f"model: timm has no {name[:100]!r}; {hint}")


def _unknown_tag(name: str) -> InputError:
    base = name.partition(".")[0]
    tags = [tag for tag in timm().list_pretrained(f"{base}.*") if tag != name]
    hint = f"it has {', '.join(tags[:8])}" if tags else f"write timm:{base} for random weights"
    return InputError(f"model: timm has no weights {name[:100]!r}; {hint}")
