"""The network's lengths, its one pass, and what a shape must be."""

import pytest
import torch

from migrator.core.errors import InputError
from migrator.forecast.informer.network import Distilling, Informer, Shape

TINY = Shape(lookback=40, start=8, ahead=16, width=8, heads=2, encoder_layers=3)


@pytest.mark.parametrize(("length", "half"), [(40, 20), (21, 11), (2, 1)])
def test_distilling_halves_the_length(length: int, half: int) -> None:
    assert Distilling(8)(torch.randn(2, length, 8)).shape == (2, half, 8)


def test_the_encoder_halves_between_its_layers() -> None:
    assert Informer(TINY).encoded(torch.randn(2, 40)).shape == (2, 10, 8)


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


def test_the_forecast_depends_on_the_whole_lookback() -> None:
    torch.manual_seed(1)
    network = Informer(TINY).eval()
    past = torch.randn(1, 40, requires_grad=True)
    network(past).sum().backward()
    assert past.grad is not None
    assert (past.grad[0].abs() > 0).float().mean() > 0.9


def test_rows_of_a_batch_do_not_meet() -> None:
    torch.manual_seed(1)
    network = Informer(TINY).eval()
    past = torch.randn(3, 40)
    torch.testing.assert_close(network(past)[1:2], network(past[1:2]))


@pytest.mark.parametrize("window_slots", [200, 20, 7, 1])
def test_a_shape_for_every_window(window_slots: int) -> None:
    shape = Shape.for_window(window_slots)
    assert (shape.lookback, shape.ahead) == (3 * window_slots, window_slots)
    assert Informer(shape).eval()(torch.zeros(1, shape.lookback)).shape == (1, window_slots)


def test_the_usual_window_has_the_usual_shape() -> None:
    assert Shape.for_window(200) == Shape()
    assert Shape().lookback >= 600


@pytest.mark.parametrize(
    "wrong", [{"width": 0}, {"heads": 5}, {"start": 605}, {"ahead": 0}, {"decoder_layers": 0}]
)
def test_parts_that_do_not_fit_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match="shape does not fit"):
        Shape(**wrong)
