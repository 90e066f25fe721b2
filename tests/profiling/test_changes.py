"""Steps of a busy neighbour, by what happened beside it."""

from __future__ import annotations

from migrator.profiling.changes import ChangeKind, ShareChange, figures_by_change


def test_a_step_counts_for_every_change_during_which_it_ran() -> None:
    began_s = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    took_s = [0.5, 0.1, 0.2, 0.3, 0.4, 0.6, 0.7]
    changes = [
        ShareChange(ChangeKind.CREATE, 3.2, 4.1),
        ShareChange(ChangeKind.START, 4.2, 4.3),
        ShareChange(ChangeKind.STOP, 4.9, 4.95),
        ShareChange(ChangeKind.CREATE, 6.1, 9.0),
    ]
    figures = figures_by_change(began_s, took_s, 0.9, changes)
    # neither the first, which warms up, nor any that a change touches
    assert (figures["steps"], figures["longest_ms"]) == (2, 200.0)
    during = figures["during"]
    assert list(during) == ["create", "start"]
    assert (during["create"]["changes"], during["create"]["steps"]) == (2, 3)
    assert (during["create"]["p50_ms"], during["create"]["longest_ms"]) == (400.0, 700.0)
    assert (during["start"]["steps"], during["start"]["p50_ms"]) == (1, 400.0)


def test_a_step_longer_than_the_quiet_time_counts_as_quiet() -> None:
    figures = figures_by_change([0.0], [5.0], 0.1, [ShareChange(ChangeKind.START, 1.0, 2.0)])
    assert (figures["steps"], figures["p50_ms"]) == (1, 5000.0)
