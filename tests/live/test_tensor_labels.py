"""Labels that are tensors, in the file of labels and as training data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.detector_model import scenes

from migrator.live.labels import ALL, ConflictingLabelError, LabelCounts, Labels, judged_as
from migrator.live.training_data import held_out_samples, window_data


async def test_they_are_read_as_they_were_stored(tmp_path: Path) -> None:
    labels, samples = Labels(tmp_path / "labels.db"), scenes(60, 0)
    for row in range(60):
        inputs, label = samples.inputs[row, ...], samples.labels[row, ...]
        correct = judged_as(label, row % 4 > 0) if row < 20 else None
        assert await labels.add("scenes", 0, inputs, label, correct, f"r{row}")
        assert not await labels.add("scenes", 0, inputs, label, correct, f"r{row}")
    assert labels.counts("scenes", 0) == LabelCounts(labelled=60, judged=20, wrong=5)
    with pytest.raises(ConflictingLabelError, match="other inputs or another label"):
        await labels.add("scenes", 0, samples.inputs[0, ...], samples.labels[1, ...], None, "r0")
    await labels.close()
    data = window_data(labels.path, "scenes", 0, held_out=0.3)
    parts = (data.new, data.held_out, data.validation)
    assert data.new_classes == {ALL}
    seen = np.concatenate([part.inputs for part in parts])
    assert seen.dtype == samples.inputs.dtype
    assert np.concatenate([part.labels for part in parts]).dtype == samples.labels.dtype
    for part in parts:
        for inputs, label in zip(part.inputs, part.labels, strict=True):
            alike = [row for row in range(60) if samples.inputs[row] == inputs]
            assert any(samples.labels[row] == label for row in alike)
    assert len({inputs.tobytes() for inputs in seen}) == len(np.unique(samples.inputs))
    judged = held_out_samples(labels.path, "scenes", 0, since=0, held_out=0.3, most=100)
    assert judged is not None
    assert len(judged) == sum(len(part) for part in parts[1:])
