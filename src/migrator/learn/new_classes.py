"""Initial weights of classes that a model has not seen: from the mean features of their samples.

A row of random weights would have to be found by training, at the expense of the classes that the
model knows. The row of a class's mean classifies well at once if the features do.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from migrator.learn.model import Inputs, Labels

_BATCH = 256
_SCORE, _LONGEST = 5.0, 1.0
"""Score of a class at its own mean if no class is known yet, and the longest row that gives it:
features that do not tell the classes apart must not get large weights."""


def last_layer(network: nn.Module, prefix: str | tuple[str, ...], classes: int) -> nn.Linear | None:
    """The layer with one row of weights per class; None if the network has none.

    `prefix`: of the names of the layers that depend on the number of classes.
    """
    layers = [
        each
        for name, each in network.named_modules()
        if f"{name}.".startswith(prefix)
        and isinstance(each, nn.Linear)
        and each.out_features == classes
    ]
    return layers[-1] if layers else None


def features_of(layer: nn.Linear, infer: Callable[[Inputs], object], inputs: Inputs) -> Tensor:
    """The inputs of the layer while the model infers these samples, one row each."""
    kept: list[Tensor] = []

    def keep(_layer: nn.Module, given: tuple[Tensor, ...]) -> None:
        kept.append(given[0].detach().float())

    hook = layer.register_forward_pre_hook(keep)
    try:
        for first in range(0, len(inputs), _BATCH):
            few = inputs[first : first + _BATCH]
            infer(few)
            kept[-1] = kept[-1][: len(few)]  # a model may add rows to fill a batch
    finally:
        hook.remove()
    return torch.cat(kept)


def place_rows(layer: nn.Linear, features: Tensor, labels: Labels, new: Labels) -> None:
    """Point the rows of the classes `new` at the means of their features.

    The rows are as long as those of the known classes among `labels`, if there are any. A sample
    at a new class's mean gets the same score as known classes get at theirs, so that neither has
    an advantage.
    """
    classes = np.unique(labels)
    device = features.device
    means = torch.stack(
        [features[torch.from_numpy(labels == each).to(device)].mean(0) for each in classes]
    )
    centre = means.mean(0)
    index = torch.from_numpy(classes).to(device)
    is_new = torch.from_numpy(np.isin(classes, new)).to(device)
    placed, known = index[is_new], index[~is_new]
    rows = layer.weight.data
    if len(known):
        length = rows[known].float().norm(dim=1).mean()
    else:
        apart = (means - centre).norm(dim=1).mean()
        length = (_SCORE / apart).clamp(max=_LONGEST)
    outwards = nn.functional.normalize(means - centre, dim=1) * length
    if not bool(torch.isfinite(outwards).all()):
        return  # the training fails and says why
    rows[placed] = outwards[is_new].to(rows.dtype)
    if layer.bias is None:
        return
    bias = layer.bias.data
    at_mean = (outwards * means).sum(1)[is_new]
    if len(known):
        scores = (rows[known].float() * means[~is_new]).sum(1) + bias[known].float()
        bias[placed] = (scores.mean() - at_mean).to(bias.dtype)
    else:
        bias[placed] = (-(outwards[is_new] @ centre + at_mean) / 2).to(bias.dtype)
