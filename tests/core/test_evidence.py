"""When labels of some answers tell how many of all answers are correct."""

from __future__ import annotations

import numpy as np
import pytest

from migrator.core.evidence import CLOSE, known_share


@pytest.mark.parametrize("correct", [0, 1, 4, 7])
def test_labels_of_all_answers_tell_it_however_few(correct: int) -> None:
    assert known_share(correct, 7, 7) == correct / 7


@pytest.mark.parametrize(("correct", "judged"), [(0, 0), (0, 5), (3, 3), (128, 256), (246, 256)])
def test_labels_of_few_among_many_do_not(correct: int, judged: int) -> None:
    assert known_share(correct, judged, 10_000) is None


@pytest.mark.parametrize("accuracy", [0.05, 0.4, 0.8, 0.97, 1.0])
@pytest.mark.parametrize("whole", [50, 1000, 20_000])
def test_what_is_known_is_close_to_the_truth(accuracy: float, whole: int) -> None:
    draw = np.random.default_rng(round(1000 * accuracy) + whole)
    known = 0
    for part in (0.02, 0.1, 0.3, 0.5, 0.8, 0.95, 1.0):
        for _ in range(50):
            answers = draw.random(whole) < accuracy
            judged = round(part * whole)
            correct = int(answers[:judged].sum())
            share = known_share(correct, judged, whole)
            if share is not None:
                known += 1
                assert abs(share - answers.mean()) <= 1.5 * CLOSE * answers.mean()
    assert known >= 50
