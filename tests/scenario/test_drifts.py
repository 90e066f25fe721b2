"""The packaged data sets: the paper's windows, and what follows from the table."""

from __future__ import annotations

import pytest

from migrator.core.errors import InputError
from migrator.core.profiles import profile, profiles
from migrator.scenario.drifts import datasets, drifts

H200 = "H200-141GB"


@pytest.mark.parametrize(
    ("name", "windows", "classes", "samples"),
    [
        ("nc-cifar-10", 4, 10, 2 * 5_000),
        ("nc-core50", 9, 50, 5 * 2_400),
        ("nc-20-newsgroups", 9, 20, 11_314 // 10),
    ],
)
def test_windows_and_classes_of_the_paper(
    name: str, windows: int, classes: int, samples: int
) -> None:
    known = datasets()[name]
    assert known.windows == windows
    assert known.classes_known(windows - 1) == classes
    assert known.samples == samples


def test_every_model_has_its_data_sets() -> None:
    vision = {model for model, _ in profiles()} - {"bert-base"}
    assert set(datasets()["nc-cifar-10"].accuracy_post) == vision
    assert set(datasets()["nc-core50"].accuracy_post) == vision
    assert set(datasets()["nc-20-newsgroups"].accuracy_post) == {"bert-base"}
    for known in datasets().values():
        for accuracy in known.accuracy_post.values():
            assert len(accuracy) == known.windows + 1
            assert list(accuracy) == sorted(accuracy, reverse=True)
            assert 0.5 < accuracy[-1] < accuracy[0] < 1


def test_the_old_model_knows_nothing_of_the_new_classes() -> None:
    found = drifts("nc-cifar-10", profile("resnet-50", H200))
    assert [each.accuracy_post for each in found] == [0.94, 0.91, 0.89, 0.87]
    assert [each.accuracy_pre for each in found] == pytest.approx(
        [0.98 * 2 / 4, 0.94 * 4 / 6, 0.91 * 6 / 8, 0.89 * 8 / 10]
    )


def test_the_mean_drop_is_the_papers() -> None:
    for model in datasets()["nc-cifar-10"].accuracy_post:
        found = drifts("nc-cifar-10", profile(model, H200))
        before = datasets()["nc-cifar-10"].accuracy_post[model]
        drops = [1 - each.accuracy_pre / old for each, old in zip(found, before, strict=False)]
        assert sum(drops) / 4 == pytest.approx(0.325, abs=0.01)


def test_retraining_takes_as_long_as_its_samples_and_epochs() -> None:
    found = drifts("nc-20-newsgroups", profile("bert-base", H200))
    assert len(found) == 9
    bert = profile("bert-base", H200)
    per_sample_s = bert.latency_s(16, 16) / 16 * bert.training_ratio
    assert found[0].seconds.at(16) == pytest.approx(1131 * 5 * per_sample_s)
    assert found[0].accuracy_post > found[0].accuracy_pre


def test_what_nobody_knows_is_refused() -> None:
    with pytest.raises(InputError, match=r"did you mean nc-cifar-10"):
        drifts("cifar-10", profile("resnet-50", H200))
    with pytest.raises(InputError, match=r"bert-base is on nc-cifar-10; use mobilenet-v2 or"):
        drifts("nc-cifar-10", profile("bert-base", H200))
