"""Tensors in safetensors files: written whole or not at all, read with one sentence for a fault."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from migrator.core.errors import InputError
from migrator.learn.atomic import written_whole


def write_tensors(tensors: Mapping[str, Tensor], path: Path, about: dict[str, str]) -> None:
    """Write them; `about` is kept beside them as text."""
    plain = {name: each.detach().cpu().contiguous().clone() for name, each in tensors.items()}
    with written_whole(path) as unfinished:
        try:
            save_file(plain, unfinished, about)
        except SafetensorError as error:
            raise OSError(str(error)) from error


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a file, or of all safetensors files in a folder, and what is said of them."""
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files:
        raise InputError(
            f"{path}: holds no .safetensors files; name a folder or file that has the weights"
        )
    tensors: dict[str, Tensor] = {}
    about: dict[str, str] = {}
    for each in files:
        try:
            with safe_open(each, framework="pt") as opened:
                about.update(opened.metadata() or {})
                names = opened.keys()
                tensors.update({name: opened.get_tensor(name) for name in names})
        except FileNotFoundError:
            raise InputError(
                f"{each}: there is no such file; save the model's weights there as safetensors, "
                "or leave --weights out to begin at random"
            ) from None
        except (OSError, SafetensorError) as error:
            raise InputError(
                f"{each}: is damaged or no safetensors file; copy it again or name another"
            ) from error
    return tensors, about
