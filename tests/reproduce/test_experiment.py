from migrator.core.comparison import SeedValues
from migrator.reproduce.experiment import cell, listed, points, signed


def test_changes_have_a_sign_and_zero_has_no_minus() -> None:
    assert [points(change) for change in (0.0123, -0.2, -0.0001)] == ["+1.2", "\u221220.0", "+0.0"]
    assert signed(0.17) == "+17.0%"


def test_names_in_a_sentence() -> None:
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed([]) == "none"


def test_a_cell_is_the_mean_over_seeds() -> None:
    assert cell(SeedValues({0: 0.4, 1: 0.6})) == "50.0"
