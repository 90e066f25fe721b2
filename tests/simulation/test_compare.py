"""What a job checks before it runs."""

from pathlib import Path

import numpy as np
import pytest
from support.scenarios import scenario, tenant

from migrator.core.errors import InputError
from migrator.core.scenario import Scenario
from migrator.forecast.informer.network import Shape
from migrator.forecast.informer.trained import save
from migrator.forecast.informer.training import Settings, train
from migrator.simulation.compare import SimulationJob


def _source(seed: int | None, windows: int | None) -> Scenario:
    assert (seed, windows) == (None, None)
    return scenario(tenant("a", [10] * 30), window_s=30)


@pytest.mark.parametrize(("window_slots", "fits"), [(30, True), (20, False)])
def test_a_model_is_for_windows_as_long_as_the_scenarios(
    window_slots: int, fits: bool, tmp_path: Path
) -> None:
    path = tmp_path / "model"
    history = np.random.default_rng(1).poisson(9, 400).astype(float)
    save(train([history], 1.0, Shape.for_window(window_slots), Settings(steps=2)), path)
    job = SimulationJob(_source, "equal-mig", f"informer:{path}")
    if fits:
        assert job.scenario().forecaster == f"informer:{path}"
    else:
        with pytest.raises(InputError, match=r"windows of 20 slots and these have 30"):
            job.scenario()
