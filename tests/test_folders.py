"""The folders of tests are the packages they test."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "migrator"
OTHER = {"support", "golden", "benchmarks", "deploy"}
"""Shared parts, recorded figures, and tests of what lies outside `src`."""
WHOLE_TREE = {
    "test_names.py",
    "test_distribution_name.py",
    "test_docs_links.py",
    "test_docstring_references.py",
    "test_extension_points.py",
    "test_folders.py",
    "test_layers.py",
    "test_private_names.py",
    "test_version_bounds.py",
}
FOLDERS = sorted(
    folder
    for folder in {path.parent.relative_to(TESTS) for path in TESTS.rglob("*.py")}
    if folder.parts and folder.parts[0] not in OTHER
)


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_a_folder_of_tests_has_a_package_of_its_name(folder: Path) -> None:
    assert (SOURCE / folder / "__init__.py").is_file()


def test_only_tests_of_the_whole_tree_are_in_no_folder() -> None:
    present = {path.name for path in TESTS.glob("test_*.py")}
    assert present == WHOLE_TREE
