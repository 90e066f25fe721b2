"""A fake NVML beneath the real binding, with its state on disk, for tests and demonstrations.

MIGRATOR_FAKE_NVML=FOLDER, or FOLDER:BOARD,BOARD,..., puts it beneath `--driver mig`;
`python -m migrator.gpu.fake_nvml --help` shows how to make it misbehave.
"""

from migrator.gpu.fake_nvml.faults import FaultKind
from migrator.gpu.fake_nvml.install import from_environment, installed
from migrator.gpu.fake_nvml.machine import FakeNvml

__all__ = ["FakeNvml", "FaultKind", "from_environment", "installed"]
