"""The packaged accuracies from measured ones: `python to_drifts.py FILE... [--write]`.

FILEs are what `benchmarks/gpu/accuracies.py` wrote. Printed, or with `--write` put into the
package. The first file gives the data sets; further ones add models that were run completely.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PACKAGED = Path(__file__).parents[2] / "src" / "migrator" / "workload" / "drifts.json"
CLASSES = {"nc-cifar-10": 2, "nc-core50": 5, "nc-20-newsgroups": 2}
ABOUT = (
    "How class-incremental data sets drift, window by window, as measured. Made by "
    "benchmarks/gpu/to_drifts.py from what benchmarks/gpu/accuracies.py measured "
    "(docs/results/h200-accuracies.json). Every window brings new classes; the model is retrained "
    "on its samples, replayed ones of earlier classes among them, for the given epochs. Accuracies "
    "are on held-out samples of all classes seen so far: of the model pre-trained on the first "
    "classes, then per window before its retraining, as estimated from a little run on a sample, "
    "and after it, of the model that serves then. Models whose provenance does not say otherwise "
    "BEGIN WITH RANDOM WEIGHTS and read images of 64 pixels (Inception-v3: 75); EfficientNet-Lite "
    "begins with ImageNet's weights and reads images of its own size. "
    "nc-core50 is Tiny ImageNet in the place of CORe50."
)

Json = dict[str, Any]


def packaged(files: Sequence[Json]) -> str:
    """The text of drifts.json, a line per model."""
    datasets = ",\n".join(_dataset(name, files) for name in CLASSES)
    return (
        f'{{\n "version": 2,\n "about": {json.dumps(ABOUT)},\n'
        f' "datasets": {{\n{datasets}\n }}\n}}\n'
    )


def _dataset(name: str, files: Sequence[Json]) -> str:
    first, *further = files
    courses = {
        course["model"]: (course, first)
        for course in first["courses"]
        if course["benchmark"] == name
    }
    head = next(iter(courses.values()))[0]
    for result in further:
        for course in result["courses"]:
            if course["benchmark"] == name and course["complete"] and not course["shuffle"]:
                courses.setdefault(course["model"], (course, result))
    samples = [row["samples"] for row in head["rows"]]
    about = {
        "classes": CLASSES[name],
        "samples": samples,
        "epochs": head["epochs"],
        "source": head["source"],
    }
    models = []
    for model, (course, result) in sorted(courses.items()):
        if [row["samples"] for row in course["rows"]] != samples:
            raise SystemExit(f"{course['key']}: its windows have other samples than {head['key']}")
        entry = _model(course, result["provenance"])
        if course["epochs"] != head["epochs"]:
            entry["epochs"] = course["epochs"]
        models.append(f"    {json.dumps(model)}: {json.dumps(entry)}")
    opened, every = json.dumps(about)[:-1], ",\n".join(models)
    return f'  {json.dumps(name)}: {opened},\n   "measured": {{\n{every}\n   }}}}'


def _model(course: Json, provenance: Json) -> Json:
    if not course["complete"]:
        raise SystemExit(f"{course['key']}: not all of its windows were run; run it again first")
    rows = course["rows"]
    where = f"{provenance['board']}, torch {provenance['torch']}, {provenance['measured']}"
    return {
        "pretrained": course["accuracy_pretrained"],
        "pre": [round(row["accuracy_pre"], 4) for row in rows],
        "estimated": [round(row["accuracy_estimated"], 4) for row in rows],
        "post": [round(row["accuracy_post"], 4) for row in rows],
        "provenance": f"{where}; weights {course['weights']}",
    }


def main() -> None:
    """Print the table, or put it into the package."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--write", action="store_true", help="into the package")
    arguments = parser.parse_args()
    text = packaged([json.loads(file.read_text(encoding="utf-8")) for file in arguments.files])
    if arguments.write:
        PACKAGED.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
