"""Folders of Hugging Face models: config.json and weights as safetensors.

A folder is named by the user, or downloaded from the Hugging Face hub and pinned: a name without a
revision is resolved once. The commit is kept in the user's cache, so that every later process uses
the same weights. Does not import torch.
"""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from migrator.core.errors import InputError
from migrator.io.atomic_write import replace_file
from migrator.io.folders import cache_folder
from migrator.learn.model import damaged

_ID = re.compile(r"(?:[\w.-]+/)?[\w.-]+")
_LONGEST_ID = 96
"""Characters of an id on the hub."""
_COMMIT = re.compile(r"[0-9a-f]{40}")
_PATTERNS = ("*.json", "*.txt", "*.model", "*.safetensors")
_TIMEOUT_S = 5.0
_TRUST = "MIGRATOR_TRUST_REMOTE_CODE"


@dataclass(frozen=True)
class ModelFolder:
    """A folder with config.json and weights as safetensors."""

    path: Path
    origin: str
    """Its origin."""

    def config(self) -> dict[str, Any]:
        """The contents of config.json; InputError if there is none."""
        file = self.path / "config.json"
        if not os.path.lexists(file):
            raise InputError(
                f"{self.path}: holds no config.json; name a folder that save_pretrained() wrote"
            )
        return _object_in(file)

    def require_weights(self) -> None:
        """InputError unless there are safetensors files, all that an index lists, of floats."""
        index = self.path / "model.safetensors.index.json"
        if index.exists() and not (self.path / "model.safetensors").exists():
            self._require_listed(index)
        if any(self.path.glob("*.safetensors")):
            self._require_unquantised()
            return
        pickled = [path for path in self.path.iterdir() if path.suffix in (".bin", ".pt", ".pth")]
        if pickled:
            raise InputError(
                f"{self.path}: its weights are pickled ({min(pickled).name}), which can run code "
                "when read; save them as safetensors with save_pretrained()"
            )
        raise InputError(f"{self.path}: holds no weights; put model.safetensors beside config.json")

    def _require_unquantised(self) -> None:
        """Refuse weights of whole numbers, which libraries would read without their scales."""
        kind = self.config().get("quantization_config")
        reason = f"by {kind.get('quant_method')}" if isinstance(kind, dict) else None
        for file in sorted(self.path.glob("*.safetensors")):
            try:
                with safe_open(file, "pt") as tensors:
                    for name in tensors.keys():  # noqa: SIM118 - not a mapping
                        dtype = tensors.get_slice(name).get_dtype()
                        if name.endswith(".weight") and not dtype.startswith(("F", "BF")):
                            reason = reason or f"{name} is {dtype}"
            except (OSError, SafetensorError) as error:
                raise damaged(file) from error
        if reason is not None:
            raise InputError(
                f"{self.path}: its weights are quantised ({reason}), so they cannot be trained; "
                "name the model that they were made from"
            )

    def _require_listed(self, index: Path) -> None:
        """InputError unless every file in the index is in this folder, and only there."""
        listed = _object_in(index).get("weight_map")
        if not isinstance(listed, dict):
            raise InputError(f"{index}: lists no files in weight_map; copy it again")
        for name in sorted({str(file) for file in listed.values()}):
            if Path(name).name != name:
                raise InputError(
                    f"{index}: lists {name[:200]!r}, which is outside of its folder; copy the "
                    "folder again"
                )
            if not (self.path / name).is_file():
                raise InputError(f"{self.path}: lacks {name[:200]}, a part of its weights; copy it")


def _object_in(file: Path) -> dict[str, Any]:
    """The JSON object in a file; InputError if there is none."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{file}: not readable as JSON; copy it again") from error
    if not isinstance(content, dict):
        raise InputError(f"{file}: not an object; copy it again")
    return content


def trusts_remote_code() -> bool:
    """Whether the user allows code that comes with models to run."""
    return os.environ.get(_TRUST) == "1"


def model_folder(text: str, form: str) -> ModelFolder:
    """The folder for `FOLDER` or `ID[@REVISION]`; downloads an id that is not here yet.

    `form` is how users name a folder, such as hf:FOLDER.
    """
    # no home folder of that user, a name that is too long, or a folder that may not be read
    with suppress(OSError, RuntimeError):
        path = Path(text).expanduser()
        if text and path.is_dir():
            return ModelFolder(path.resolve(), f"the folder {path.resolve().name}")
    name, _, revision = text.partition("@")
    if not _ID.fullmatch(name) or name.startswith(".") or len(name) > _LONGEST_ID:
        raise InputError(
            f"model: there is no folder {text[:200]!r}; name a folder with config.json and "
            "weights, or an id of the hub such as owner/name"
        )
    return _from_hub(name, revision or "main", form)


def _from_hub(name: str, revision: str, form: str) -> ModelFolder:
    pin = cache_folder("hub") / f"{name.replace('/', '--')}@{revision.replace('/', '--')}"
    commit = ""
    with suppress(OSError, UnicodeDecodeError):
        pinned = pin.read_text(encoding="ascii").strip()
        commit = pinned if _COMMIT.fullmatch(pinned) else ""  # a damaged file is replaced
    try:
        hub: Any = import_module("huggingface_hub")
    except ModuleNotFoundError as error:
        raise InputError(
            "this model needs huggingface_hub, which is not installed: "
            "pip install 'migrator-gpu[learn]'"
        ) from error
    if commit:
        with suppress(Exception):  # not in the cache of the hub any more: downloaded again
            return _pinned(name, _snapshot(hub, name, commit, local_files_only=True))
    kept = _downloaded(hub, name, commit or revision, form)
    with suppress(OSError):
        pin.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(pin) as draft:
            draft.write_text(Path(kept).name, encoding="ascii")
    return _pinned(name, kept)


def _pinned(name: str, folder: str) -> ModelFolder:
    return ModelFolder(Path(folder), f"{name} of the hub, commit {Path(folder).name}")


def _downloaded(hub: Any, name: str, revision: str, form: str) -> str:
    """The folder of this revision in the hub's cache."""
    errors: Any = import_module("huggingface_hub.errors")
    try:
        commit = hub.HfApi().model_info(name, revision=revision, timeout=_TIMEOUT_S).sha
    except errors.RevisionNotFoundError as error:
        raise InputError(
            f"model: {name} has no revision {revision[:60]!r} on the hub; give a branch, a tag or "
            "a commit that exists"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise InputError(
            f"model: the hub has no {name}, or it is private; check the name, or log in with "
            "`hf auth login`"
        ) from error
    except errors.HFValidationError as error:
        said = str(error).partition("\n")[0][:200].rstrip(".")
        raise InputError(
            f"model: {name} is neither a folder nor an id of the hub ({said}); name a folder with "
            "config.json and weights, or an id such as owner/name"
        ) from error
    except Exception as error:  # no network, the hub is down, or offline mode
        with suppress(Exception):
            return _snapshot(hub, name, revision, local_files_only=True)
        raise _unreachable(name, revision, form, error) from error
    bars: Any = import_module("huggingface_hub.utils")
    bars.disable_progress_bars()  # their threads would not survive a fork
    print(f"downloading {name} at {commit[:12]} from the hub", file=sys.stderr, flush=True)
    try:
        return _snapshot(hub, name, commit, local_files_only=False)
    except Exception as error:
        raise _unreachable(name, revision, form, error) from error


def _snapshot(hub: Any, name: str, revision: str, *, local_files_only: bool) -> str:
    """The folder of a revision with the files that models need."""
    code = ("*.py",) if trusts_remote_code() else ()
    folder: str = hub.snapshot_download(
        name,
        revision=revision,
        allow_patterns=[*_PATTERNS, *code],
        ignore_patterns=["*/*"],
        etag_timeout=_TIMEOUT_S,
        local_files_only=local_files_only,
    )
    return folder


def _unreachable(name: str, revision: str, form: str, error: Exception) -> InputError:
    asked = name if revision == "main" else f"{name} --revision {revision}"
    said = str(error).partition("\n")[0][:100]
    return InputError(
        f"model: {name} is neither a folder nor downloaded, and the hub cannot be reached "
        f"({type(error).__name__}: {said}); run `hf download {asked} --local-dir FOLDER` where "
        f"there is a network, copy FOLDER here and write {form}"
    )
