"""The Informer's network: its one pass, its shape, ProbSparse attention against full attention."""

import pytest
import torch
from torch import Tensor

from migrator.core.errors import InputError
from migrator.forecast.informer.network import (
    Attention,
    Informer,
    Shape,
    full_attention,
    prob_sparse,
)

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


def _random(length: int, seed: int) -> Tensor:
    return torch.randn(2, 3, length, 4, generator=torch.Generator().manual_seed(seed))


def _near(computed: Tensor, wanted: Tensor) -> Tensor:
    """Per query whether it got this."""
    return torch.isclose(computed, wanted, atol=1e-5).all(-1)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("samples", [1, 9])
def test_with_every_query_active_it_is_full_attention(causal: bool, samples: int) -> None:
    queries, keys, values = (_random(9, seed) for seed in range(3))
    attended = prob_sparse(queries, keys, values, 9, torch.arange(samples), causal)
    torch.testing.assert_close(attended, full_attention(queries, keys, values, causal))


@pytest.mark.parametrize("active", [1, 8])
def test_lazy_queries_get_the_mean_and_active_ones_their_own(active: int) -> None:
    queries, keys, values = (_random(12, seed) for seed in range(3))
    attended = prob_sparse(queries, keys, values, active, torch.arange(12), causal=False)
    full, mean = full_attention(queries, keys, values), values.mean(-2, keepdim=True)
    own = _near(attended, full)
    lazy = _near(attended, mean.expand_as(attended))
    assert (own.sum(-1) == active).all()
    assert (own ^ lazy).all()


@pytest.mark.parametrize("active", [2, 12])
@pytest.mark.parametrize("border", [1, 11])
def test_the_causal_one_takes_nothing_from_ahead(active: int, border: int) -> None:
    queries, keys, values = (_random(12, seed) for seed in range(3))
    sampled = torch.arange(0, 12, 3)
    before = prob_sparse(queries, keys, values, active, sampled, causal=True)
    values[..., border:, :] += 100
    after = prob_sparse(queries, keys, values, active, sampled, causal=True)
    torch.testing.assert_close(after[..., :border, :], before[..., :border, :])
    assert not torch.isclose(after[..., border:, :], before[..., border:, :]).any()


def test_heads_answer_alike_again_once_trained_and_vary_in_training() -> None:
    torch.manual_seed(3)
    layer = Attention(8, 2, factor=1.0)
    tokens = torch.randn(1, 40, 8)
    layer.eval()
    assert torch.equal(layer(tokens, tokens), layer(tokens, tokens))
    layer.train()
    assert not all(torch.equal(layer(tokens, tokens), layer(tokens, tokens)) for _ in range(8))
