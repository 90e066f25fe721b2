"""Which part of a network a training changes: its head, the last block and the head, or all.

The tensors of a network are in the order in which their layers were added, which is nearly always
the order in which they are used. The last block is the last element of the last list of blocks, and
whatever follows it: the last stage of a convolutional network, the last layer of a transformer with
its pooler. A network without such a list has a last block only if its model names it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from migrator.core.errors import InputError
from migrator.core.training import Layers

Prefix = str | tuple[str, ...]
_MATRIX = 2
"""Dimensions from which a weight belongs to a layer that learns features: norms have one."""


@dataclass(frozen=True)
class Frozen:
    """The part of a network that a training does not change, by its names."""

    parameters: frozenset[str] = frozenset()
    modules: tuple[str, ...] = ()
    """The outermost modules that are frozen as a whole."""

    def hold(self, network: nn.Module) -> None:
        """Let these modules work as when serving: fixed statistics, no dropout."""
        for name in self.modules:
            network.get_submodule(name).eval()

    def release(self, network: nn.Module) -> None:
        """Let trainings change everything again."""
        for name, parameter in network.named_parameters():
            if name in self.parameters:
                parameter.requires_grad_(True)


def freeze(
    network: nn.Module, layers: Layers, head: Prefix, last_block: Prefix, model: str
) -> Frozen:
    """Exclude all but these layers from trainings; InputError if they are not known.

    `head` and `last_block`: prefixes of the names of their tensors; `model`: its name in errors.
    """
    if layers is Layers.ALL:
        return Frozen()
    trained = set(_names_of_head(network, head, model))
    if layers is Layers.LAST_BLOCK:
        trained |= _names_of_last_block(network, head, last_block, model)
    # what its own model excludes stays so when the others are released
    frozen = [
        (name, parameter)
        for name, parameter in network.named_parameters()
        if name not in trained and parameter.requires_grad
    ]
    for _, parameter in frozen:
        parameter.requires_grad_(False)
    return Frozen(frozenset(name for name, _ in frozen), tuple(_untrained(network, trained)))


def _names_of_head(network: nn.Module, head: Prefix, model: str) -> list[str]:
    names = [name for name in network.state_dict() if name.startswith(head)]
    if not names or not head:
        raise InputError(
            f"layers: the head of {model} is not known, so only all of its layers can be trained; "
            "set its attribute `head` (docs/bring-your-model.md)"
        )
    return names


def _names_of_last_block(
    network: nn.Module, head: Prefix, last_block: Prefix, model: str
) -> set[str]:
    names = list(network.state_dict())
    if last_block:
        return {name for name in names if name.startswith(last_block)}
    first = _first_of_last_block(network, head)
    if first is None:
        raise InputError(
            f"layers: the last block of {model} is not known; set its attribute `last_block` "
            "(docs/bring-your-model.md), or train its head or all layers"
        )
    begin = next(at for at, name in enumerate(names) if name.startswith(f"{first}."))
    return set(names[begin:])


def _first_of_last_block(network: nn.Module, head: Prefix) -> str | None:
    """The name of the last element of the last outermost list of blocks; None without a list."""
    last, element = "", None
    for name, module in network.named_modules():
        if not isinstance(module, nn.ModuleList | nn.Sequential) or (
            last and name.startswith(f"{last}.")
        ):
            continue
        blocks = [
            full
            for child, block in module.named_children()
            if not f"{(full := _joined(name, child))}.".startswith(head)
            and any(weight.ndim >= _MATRIX for weight in block.parameters())
        ]
        if len(blocks) > 1:
            last, element = name, blocks[-1]
            if not name:
                break  # the network itself is the list
    return element


def _untrained(network: nn.Module, trained: set[str], name: str = "") -> Iterator[str]:
    """The outermost modules whose tensors are all untrained."""
    for child, module in network.named_children():
        full = _joined(name, child)
        names = {f"{full}.{tensor}" for tensor in module.state_dict()}
        if names and not names & trained:
            yield full
        elif names - trained:
            yield from _untrained(module, trained, full)


def _joined(name: str, child: str) -> str:
    return f"{name}.{child}" if name else child
