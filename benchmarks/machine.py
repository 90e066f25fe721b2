"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def describe_machine() -> dict[str, str]:
    """Processor, cores, system and the versions that decide how fast a plan is."""
    return {
        "cpu": _cpu_model(),
        "cores": str(_cores()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.0f} GB",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: _version(name) for name in ("numpy", "numba", "highspy")},
    }


def _cores() -> int:
    """Those this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu_model() -> str:
    return _from_cpuinfo() or _from_lscpu() or platform.processor() or platform.machine()


def _from_cpuinfo() -> str | None:
    path = Path("/proc/cpuinfo")
    return _value_of("model name", path.read_text()) if path.exists() else None


def _from_lscpu() -> str | None:
    """An ARM kernel numbers its cores in /proc/cpuinfo; lscpu knows the names."""
    try:
        shown = subprocess.run(["lscpu"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    vendor, model = _value_of("Vendor ID", shown.stdout), _value_of("Model name", shown.stdout)
    return f"{vendor or ''} {model}".strip() if model else None


def _value_of(key: str, text: str) -> str | None:
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip() == key and value.strip():
            return value.strip()
    return None


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
