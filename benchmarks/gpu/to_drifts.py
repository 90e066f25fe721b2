"""The packaged accuracies from measured ones: `python benchmarks/gpu/to_drifts.py FILE [--write]`.

FILE is what `benchmarks/gpu/accuracies.py` wrote. Printed, or with `--write` put into the package.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

PACKAGED = Path(__file__).parents[2] / "src" / "migrator" / "scenario" / "drifts.json"
CLASSES = {"nc-cifar-10": 2, "nc-core50": 5, "nc-20-newsgroups": 2}
ABOUT = (
    "How class-incremental data sets drift, window by window, as measured. Made by "
    "benchmarks/gpu/to_drifts.py from what benchmarks/gpu/accuracies.py measured "
    "(docs/results/h200-accuracies.json). Every window brings new classes; the model is retrained "
    "on its samples, replayed ones of earlier classes among them, for the given epochs. Accuracies "
    "are on held-out samples of all classes seen so far: of the model pre-trained on the first "
    "classes, then per window before its retraining, as estimated from a little run on a sample, "
    "and after it, of the model that serves then. ALL OF THEM REST ON RANDOM INITIALISATION and on "
    "images of 64 pixels (Inception-v3: 75): published weights would lift every level. "
    "nc-core50 is Tiny ImageNet in the place of CORe50."
)

Json = dict[str, Any]


def packaged(found: Json) -> str:
    """The text of drifts.json, a line per model."""
    datasets = ",\n".join(_dataset(name, found) for name in CLASSES)
    return (
        f'{{\n "version": 2,\n "about": {json.dumps(ABOUT)},\n'
        f' "datasets": {{\n{datasets}\n }}\n}}\n'
    )


def _dataset(name: str, found: Json) -> str:
    courses = [each for each in found["courses"] if each["benchmark"] == name]
    first = courses[0]
    head = {
        "classes": CLASSES[name],
        "samples": [row["samples"] for row in first["rows"]],
        "epochs": first["epochs"],
        "source": first["source"],
    }
    where = found["provenance"]
    words = ", ".join([where["board"], f"torch {where['torch']}", where["measured"]])
    models = ",\n".join(
        f"    {json.dumps(each['model'])}: {json.dumps(_model(each, words))}"
        for each in sorted(courses, key=lambda each: str(each["model"]))
    )
    opened = json.dumps(head)[:-1]
    return f'  {json.dumps(name)}: {opened},\n   "measured": {{\n{models}\n   }}}}'


def _model(course: Json, where: str) -> Json:
    if not course["complete"]:
        raise SystemExit(f"{course['key']}: not all of its windows were run; run it again first")
    rows = course["rows"]
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
    parser.add_argument("file", type=Path)
    parser.add_argument("--write", action="store_true", help="into the package")
    given = parser.parse_args()
    text = packaged(json.loads(given.file.read_text(encoding="utf-8")))
    if given.write:
        PACKAGED.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
