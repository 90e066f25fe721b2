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

One course per table: a model learns the first classes of a benchmark, then every window adds new
ones. It is retrained on the window's samples and on up to {memory} of every earlier class.
Accuracies are on held-out samples of all classes seen so far, which neither training nor the
choice of the epoch uses.

- *never*: the model of the first classes, never retrained;
- *before*, *estimated*, *after*: the model that serves, and the estimate made before retraining;
- *all samples*: a new model trained on all samples of all windows so far;
- *regained*: (after - never) / (all samples - never).

{board}, torch {torch}, {measured}; batch {batch}, images of the model's own size, {precision}.
Several courses shared the GPU, so seconds are not comparable and are left out.

What to bear in mind: seed 0 takes the classes in the data set's order, seed 1 in another one. The
recipe was chosen by accuracies on held-out samples of the same two sets of pictures, in a third
order ([decision 007](../decisions/007-retraining-and-its-estimate.md)), so figures of pictures are
somewhat too good. Models with random weights reach little and vary: what `resnet-50` regains lies
between 44% and 130% in single windows. Courses that say "not all windows" were cut off by the end
of the machine's time.

```
python -m benchmarks.gpu.accuracies --device cuda --epochs 6 --pixels 0 --bounds \\
    --only MODEL:BENCHMARK ... --out h200-published.json            # and --seeds 1 --shuffle
python -m benchmarks.gpu.accuracies --device cuda --epochs 8 --bounds \\
    --only bert-base:nc-20-newsgroups [--weights bert-base=FILE] --out h200-published.json
python -m benchmarks.gpu.recovery_page docs/results/h200-published.json --out docs/results
```
"""


def page(found: Json) -> str:
    """The whole page."""
    courses = sorted(found["courses"], key=lambda course: (not course["complete"], course["key"]))
    first = courses[0]
    keys = ("memory", "batch")
    head = _HEAD.format(**found["provenance"], **{key: first[key] for key in keys})
    return "\n".join([head, *_summary(courses), "", *map(_table, courses)])


def _summary(courses: Sequence[Json]) -> Iterator[str]:
    yield "| model, benchmark | windows | mean gain | regained | estimate off by (median, most) |"
    yield "|---|---|---|---|---|"
    for course in courses:
        rows = course["rows"]
        gain = sum(row["accuracy_post"] - row["accuracy_pre"] for row in rows) / len(rows)
        off = sorted(abs(row["accuracy_estimated"] - row["accuracy_post"]) for row in rows)
        parts = _regained(course)
        share = f"{sum(parts) / len(parts):.1%}" if parts else ""
        yield (
            f"| {_title(course)} | {len(rows)} | {100 * gain:.1f} points | {share} "
            f"| {100 * median(off):.1f}, {100 * off[-1]:.1f} points |"
        )
    every = [row for course in courses for row in course["rows"] if "ImageNet" in _weights(course)]
    off = [abs(row["accuracy_estimated"] - row["accuracy_post"]) for row in every]
    yield ""
    yield (
        f"Published weights, {len(every)} windows: estimates are off by {100 * median(off):.1f} "
        "points (median)."
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


def _table(course: Json) -> str:
    lines = [
        f"## {_title(course)}",
        "",
        f"Weights: {_weights(course)}. Data: {course['source']}. {course['epochs']} epochs.",
        "",
        "| window | classes | never | before | estimated | after | all samples | regained |",
        "|---|---|---|---|---|---|---|---|",
    ]
    parts = _regained(course)
    for number, row in enumerate(course["rows"]):
        bound = course["bounds"][number] if number < len(course["bounds"]) else None
        never, every = (
            ("", "") if bound is None else (bound["never_retrained"], bound["all_samples"])
        )
        values = (
            *(never, row["accuracy_pre"], row["accuracy_estimated"], row["accuracy_post"]),
            every,
        )
        shown = " | ".join(value if isinstance(value, str) else f"{value:.3f}" for value in values)
        share = f"{parts[number]:.1%}" if bound is not None else ""
        lines.append(f"| {row['window']} | {row['classes']} | {shown} | {share} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Write the page, or print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path, help="folder of published-weights.md")
    given = parser.parse_args()
    text = page(json.loads(given.file.read_text(encoding="utf-8")))
    if given.out is None:
        print(text)
    else:
        (given.out / "published-weights.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
