"""The network's lengths, its one pass, and what a shape must be."""

import pytest
import torch

from migrator.core.errors import InputError
from migrator.forecast.informer.network import Informer, Shape

TINY = Shape(lookback=40, start=8, ahead=16, width=8, heads=2, encoder_layers=3)


def test_one_pass_gives_every_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Informer(TINY).eval()
    lengths = []
    decode = network.decoder[0].forward

    def watched(tokens: torch.Tensor, encoded: torch.Tensor) -> torch.Tensor:
        lengths.append(tokens.shape[1])
        out: torch.Tensor = decode(tokens, encoded)
        return out

    monkeypatch.setattr(network.decoder[0], "forward", watched)
    assert network(torch.randn(3, 40)).shape == (3, 16)
    assert lengths == [8 + 16]


@pytest.mark.parametrize("window_slots", [200, 20, 7, 1])
def test_a_shape_for_every_window(window_slots: int) -> None:
    shape = Shape.for_window(window_slots)
    assert (shape.lookback, shape.ahead) == (3 * window_slots, window_slots)
    assert Informer(shape).eval()(torch.zeros(1, shape.lookback)).shape == (1, window_slots)


@pytest.mark.parametrize(
    "wrong", [{"width": 0}, {"heads": 5}, {"start": 605}, {"ahead": 0}, {"decoder_layers": 0}]
)
def test_parts_that_do_not_fit_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match="shape does not fit"):
        Shape(**wrong)
