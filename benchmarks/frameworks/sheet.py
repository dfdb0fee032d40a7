"""The table of the frameworks' steps, and their figures, of a document that `python -m benchmarks.frameworks` wrote."""

import math

from benchmarks.document import Document
from benchmarks.ratios import geometric_mean
from benchmarks.sheet import Sheet


def frameworks_sheet(document: Document) -> Sheet:
    """One row for each step, and the geometric mean."""
    rows = []
    for step in document["steps"]:
        times = (f"{1e6 * step[side]:.1f}" for side in ("native_s", "fairgv_s"))
        rows.append((step["name"], "yes" if step["agrees"] else "NO", *times, f"{step['ratio']:.3f}"))
    mean = geometric_mean([step["ratio"] for step in document["steps"] if not math.isnan(step["ratio"])])
    rows.append(("geometric mean", "", "", "", f"{mean:.3f}"))
    notes = (
        "Time of a step through FairGV over native; below 1 FairGV is faster. The same result: to the last digit printed.",
    )
    return Sheet("Steps", ("step", "same result", "native us", "FairGV us", "ratio"), tuple(rows), notes)


def framework_figures(document: Document) -> dict[str, float]:
    """Of each step, its time over native, and whether its result is the same: 1 or 0."""
    ratios = {f"{step['name']}/time over native": float(step["ratio"]) for step in document["steps"]}
    return ratios | {f"{step['name']}/same result": float(step["agrees"]) for step in document["steps"]}
