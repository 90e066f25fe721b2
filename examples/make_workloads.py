"""Writes the paper's 16 workloads as scenario files: python examples/make_workloads.py."""

from pathlib import Path

from migrator.scenario.workloads import workload_yaml, workloads


def main() -> None:
    """Write every workload of the table beside this script."""
    folder = Path(__file__).parent / "workloads"
    folder.mkdir(exist_ok=True)
    for name, each in workloads().items():
        (folder / each.file_name).write_text(workload_yaml(name), encoding="utf-8")


if __name__ == "__main__":
    main()
