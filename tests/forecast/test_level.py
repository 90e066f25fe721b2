"""Means of the latest slots, by hand."""

import numpy as np

from migrator.forecast.levels import SPANS, last_window_mean, levels, means_before

HISTORY = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])


def test_means_of_what_there_is() -> None:
    found = means_before(HISTORY, np.array([8, 3]), np.array([1, 2, 6]))
    assert found.tolist() == [[8, 7.5, 5.5], [3, 2.5, 2]]


def test_one_level_for_each_span() -> None:
    found = levels(HISTORY, np.array([8]), 4)
    # half a slot is one slot; five windows are all there is
    assert found.tolist() == [[8, 8, 7.5, 6.5, 4.5, 4.5]]
    assert found[:, SPANS.index(1)].tolist() == last_window_mean(HISTORY, np.array([8]), 4).tolist()


def test_no_level_is_below_nothing() -> None:
    history = np.concatenate((np.full(1000, 1e15 / 3), np.zeros(50)))
    assert (levels(history, np.arange(1010, 1051), 8) >= 0).all()
