"""Writes the example scenarios, the paper's 16 among them: python examples/make_workloads.py."""

from pathlib import Path

from migrator.workload.examples import example_text
from migrator.workload.workloads import all_workloads, workload_yaml


def main() -> None:
    """Write the quick start and every workload beside this script."""
    here = Path(__file__).parent
    (here / "quickstart.yaml").write_text(example_text("quickstart"), encoding="utf-8")
    folder = here / "workloads"
    folder.mkdir(exist_ok=True)
    for name, workload in all_workloads().items():
        (folder / workload.file_name).write_text(workload_yaml(name), encoding="utf-8")


if __name__ == "__main__":
    main()
