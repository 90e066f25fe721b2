"""Networks from the configurations of transformers, with random weights."""

from __future__ import annotations

from importlib import import_module

from torch import nn

from migrator.core.errors import InputError


def network_from(configuration: str, network: str, **settings: object) -> nn.Module:
    """The network called so in transformers, freshly initialised; nothing is downloaded."""
    try:
        transformers = import_module("transformers")
    except ModuleNotFoundError as error:
        raise InputError(
            f"{network} comes from transformers, which is not installed: "
            "pip install 'migrator[learn]'"
        ) from error
    built: nn.Module = getattr(transformers, network)(
        getattr(transformers, configuration)(**settings)
    )
    return built
