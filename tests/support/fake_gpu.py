"""The `mig` driver over a fake machine, as most tests of it need it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from migrator.gpu.drivers import mig
from support.fake_nvml.library import installed
from support.fake_nvml.machine import FakeNvml


@contextmanager
def mig_driver(
    folder: Path, board: str = "A100-40GB", *, mig_on: bool = True
) -> Iterator[tuple[FakeNvml, mig.MigDriver]]:
    """The fake machine and its driver; nothing ever waits."""
    with (
        installed(folder, [board], mig=mig_on) as fake,
        mig.open_mig(0, boot_id=fake.boot_id) as driver,
    ):
        yield fake, driver
