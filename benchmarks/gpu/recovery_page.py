"""The page of measured courses: `python recovery_page.py FILE [--out DIR]`.

FILE is what `benchmarks/gpu/accuracies.py` wrote; published-weights.md is made from it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

Json = dict[str, Any]

_HEAD = """\
# Retraining with published and with random weights

A model is retrained on every window's samples and on up to {memory} of every earlier class.
*Before* and *after*: accuracies in percent on held-out samples of all classes seen so far.
*Regained*: (after - never) / (all - never), where *never* is the model of the first
classes and *all* a new model trained on all samples so far. [Rows](h200-published.json).

{board}, torch {torch}, {measured}; batch {batch}, images of the model's own size, {precision};
EfficientNet-Lite with ImageNet's weights, `resnet-50` and `bert-base` with random ones.

- Seed 1 takes the classes in another order. The recipe was chosen on the same pictures in a third
  order, so their figures are somewhat too good.
- "Not all windows": cut off by the end of the machine's time.

```
python -m benchmarks.gpu.accuracies --device cuda --epochs 6 --pixels 0 --bounds \\
    --only MODEL:BENCHMARK ... --out h200-published.json            # and --seeds 1 --shuffle
python -m benchmarks.gpu.accuracies --device cuda --epochs 8 --bounds \\
    --only bert-base:nc-20-newsgroups [--weights bert-base=FILE] --out h200-published.json
python -m benchmarks.gpu.recovery_page docs/results/h200-published.json --out docs/results
```
"""


def page(figures: Json) -> str:
    """The whole page."""
    courses = sorted(figures["courses"], key=lambda course: (not course["complete"], course["key"]))
    first = courses[0]
    keys = ("memory", "batch")
    head = _HEAD.format(**figures["provenance"], **{key: first[key] for key in keys})
    return "\n".join([head, *_summary(courses), ""])


def _summary(courses: Sequence[Json]) -> Iterator[str]:
    yield "| model, benchmark | before | after | mean gain | regained | estimate off by |"
    yield "|---|---|---|---|---|---|"
    for course in courses:
        rows = course["rows"]
        gain = sum(row["accuracy_post"] - row["accuracy_pre"] for row in rows) / len(rows)
        off = sorted(abs(row["accuracy_estimated"] - row["accuracy_post"]) for row in rows)
        parts = _regained(course)
        share = f"{sum(parts) / len(parts):.1%}" if parts else ""
        yield (
            f"| {_title(course)} | {_percents(rows, 'accuracy_pre')} "
            f"| {_percents(rows, 'accuracy_post')} | {100 * gain:.1f} | {share} "
            f"| {100 * median(off):.1f}, {100 * off[-1]:.1f} at most |"
        )
    every = [row for course in courses for row in course["rows"] if "ImageNet" in _weights(course)]
    off = [abs(row["accuracy_estimated"] - row["accuracy_post"]) for row in every]
    yield ""
    yield (
        f"Published weights, {len(every)} windows: estimates are off by {100 * median(off):.1f} "
        "points in the median."
    )


def _regained(course: Json) -> list[float]:
    return [
        (row["accuracy_post"] - bound["never_retrained"])
        / (bound["all_samples"] - bound["never_retrained"])
        for row, bound in zip(course["rows"], course["bounds"], strict=False)
    ]


def _weights(course: Json) -> str:
    return str(course["weights"]).removesuffix("head random").rstrip(",; ")


def _title(course: Json) -> str:
    begun = ", masked words" if "masked" in course["weights"] else ""
    order = ", seed 1" if course["shuffle"] else ""
    unfinished = "" if course["complete"] else ", not all windows"
    return f"`{course['model']}`{begun}, `{course['benchmark']}`{order}{unfinished}"


def _percents(rows: Sequence[Json], key: str) -> str:
    return " ".join(f"{100 * row[key]:.1f}" for row in rows)


def main() -> None:
    """Write the page, or print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path, help="folder of published-weights.md")
    arguments = parser.parse_args()
    text = page(json.loads(arguments.file.read_text(encoding="utf-8")))
    if arguments.out is None:
        print(text)
    else:
        (arguments.out / "published-weights.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
