"""Child processes get the variables that they need and no secrets."""

import os
from pathlib import Path

import migrator
from migrator.io.child_process import child_environment


def test_only_what_is_needed_passes() -> None:
    given = {
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": "0",
        "MIGRATOR_DATA": "/data",
        "MIGRATOR_LOG_FORMAT": "json",
        "PYTHONPATH": "/own",
        "OMP_NUM_THREADS": "8",
        "NVIDIA_API_KEY": "secret",
        "PYTHON_TOKEN": "secret",
        "MIGRATOR_ADMIN_TOKEN": "secret",
        "HF_TOKEN": "secret",
        "AWS_PROFILE": "somebody",
    }
    source = str(Path(migrator.__file__).parent.parent)
    assert child_environment(given) == {
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": "0",
        "MIGRATOR_DATA": "/data",
        "MIGRATOR_LOG_FORMAT": "json",
        "PYTHONPATH": f"{source}{os.pathsep}/own",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
