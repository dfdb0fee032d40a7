"""Writes docs/results.md from the JSON files in benchmarks/results: `python -m benchmarks.results [--check]`. No figure is typed by hand."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from backend_host.config import PACKAGE_ROOT

RESULTS = PACKAGE_ROOT / "benchmarks/results"
PAGE = PACKAGE_ROOT / "docs/results.md"

HEAD = """# Results

Made by `python -m benchmarks.results` from the files in `benchmarks/results`: no figure is typed by hand. Quote ratios; the other
figures belong to their machine.
"""
OVERHEAD = """Each row compares native and FairGV in one run on one machine, medians over alternating repetitions. A ratio above 1 means that
FairGV is better: faster, or more bytes a second.

Why a guest can be faster than native: it does not wait for the driver. A launch or a small copy to the device is a record in a ring, and
the worker makes the driver's call on another core. Where CUDA itself waits, the guest pays for the way to the worker and back.
"""


def overhead(document: dict[str, Any]) -> str:
    """Single operations, native and through FairGV."""
    lines = [
        f"## Single operations, {document['device_name']}",
        "",
        OVERHEAD,
        f"{document['date']}, {document['machine']}, {document['nr_repetitions']} repetitions: `{document['command']}`",
        "",
        "| operation | native | FairGV | unit | ratio | aim |",
        "|---|---:|---:|---|---:|---|",
    ]
    for name, row in document["results"].items():
        lines.append(
            f"| {name} | {row['native']:.3g} | {row['guest']:.3g} | {row['unit']} | {row['ratio']:.2f} | {row['aim']} |"
        )
    return "\n".join(lines) + "\n"


def fairness(document: dict[str, Any]) -> str:
    """Shares of vGPUs under each policy."""
    mixture = document["mixture"]
    kernels, rows = (", ".join(f"{number:g}" for number in mixture[name]) for name in ("kernel_us", "queue"))
    lines = [
        f"## Shares, {document['device']}: weights {':'.join(map(str, mixture['weights']))}, kernels of {kernels} us, {rows} in a row",
        "",
        "Min-max ratio, 1 is fair: of each vGPU's throughput over its part of what its program reaches alone; of kernel time as the programs",
        "counted it; and of GPU time as it was charged.",
        "",
        f"{document['date']}, {document['machine']}, load {document['load_before']:.1f} before: `{document['command']}`",
        "",
        "| policy | min-max ratio | of kernel s | of charges | utilisation | kernel s / weight |",
        "|---|---:|---:|---:|---:|---|",
    ]
    names = ("min_max_ratio", "kernel_min_max_ratio", "charged_min_max_ratio", "utilisation")
    for result in document["results"]:
        each = ", ".join(f"{share['kernel_s'] / share['weight']:.3g}" for share in result["shares"])
        ratios = " | ".join(f"{result[name]:.3f}" for name in names)
        lines.append(f"| {result['policy']} | {ratios} | {each} |")
    return "\n".join(lines) + "\n"


def speed(document: dict[str, Any]) -> str:
    """softgpu beside C loops."""
    aim = document["aim"]
    lines = [
        "## softgpu beside plain C loops",
        "",
        f"The same kernels as C loops at -O2, on the same number of cores ({document['nr_threads']}), in turn. The ratio is softgpu's",
        f"time over that of the loops; aim: a geometric mean of at most {aim['ratio']:g}. Compile is what an empty cache adds to the",
        f"first launch; aim: at most {aim['compile_s']} s.",
        "",
        f"{document['date']}, {document['machine']}, load {document['load_at_start']:.1f} before, {document['nr_repetitions']} repetitions: "
        f"`{document['command']}`",
        "",
        "| program | softgpu | loops | unit | ratio | compile s |",
        "|---|---:|---:|---|---:|---:|",
    ]
    for name, row in document["results"].items():
        figures = (
            f"{row['softgpu']:.3g} | {row['loops']:.3g} | {row['unit']} | {row['ratio']:.2f} | {row['compile_s']:.2f}"
        )
        lines.append(f"| {name} | {figures} |")
    lines.append(f"| geometric mean | | | | {document['geometric_mean']:.2f} | |")
    return "\n".join(lines) + "\n"


def timeline(document: dict[str, Any]) -> str:
    """Charges and hand-overs by the device's clock."""
    lines = [
        f"## Charges and hand-overs by the device's own clock, {document['device']}",
        "",
        f"Two vGPUs of equal weight, {document['queue']} kernels in a row. The error of a charge is against the time that the kernels",
        "occupied the device; a gap is from the last kernel of one vGPU to the first of the next, with the device's own switch in it.",
        "",
        f"{document['date']}, {document['machine']}: `{document['command']}`",
        "",
        "| kernels of us | error of charges | hand-overs | gap us, median | 90 % | 99 % |",
        "|---:|---|---:|---:|---:|---:|",
    ]
    for row in document["timelines"]:
        errors = ", ".join(f"{100 * error:+.1f} %" for error in row["errors"])
        gaps = " | ".join(f"{gap:.0f}" for gap in row["gap_percentiles_us"].values())
        lines.append(f"| {row['kernel_us']:g} | {errors} | {len(row['gaps_us'])} | {gaps} |")
    return "\n".join(lines) + "\n"


def frameworks(document: dict[str, Any]) -> str:
    """PyTorch and the others."""
    lines = [
        f"## Frameworks and libraries, {document['device']}",
        "",
        "Time of a step through FairGV over native, in one run; below 1 FairGV is faster. The same result: to the last digit printed.",
        "",
        f"{document['date']}, {document['machine']}: `{document['command']}`",
        "",
        "| step | same result | native us | FairGV us | ratio |",
        "|---|---|---:|---:|---:|",
    ]
    for row in document["steps"]:
        times = " | ".join(f"{1e6 * row[name]:.1f}" for name in ("native_s", "fairgv_s"))
        lines.append(f"| {row['name']} | {'yes' if row['agrees'] else 'no'} | {times} | {row['ratio']:.3f} |")
    lines.append(f"| geometric mean | | | | {document['geometric_mean']:.3f} |")
    return "\n".join(lines) + "\n"


SECTIONS = {
    "overhead": overhead,
    "fairness": fairness,
    "softgpu-speed": speed,
    "timeline": timeline,
    "frameworks": frameworks,
}
"""By what a file's name begins with."""


def section(path: Path) -> str:
    """One measurement. Raises KeyError for a file of no known kind."""
    [kind] = [kind for kind in SECTIONS if path.name.startswith(kind)]
    return SECTIONS[kind](json.loads(path.read_text()))


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(section(path) for path in sorted(RESULTS.glob("*.json")))])


def main() -> int:
    """Entry point; with --check exit status 1 when the page is stale."""
    parser = argparse.ArgumentParser(prog="results", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail when the page is stale")
    text = page()
    if parser.parse_args().check:
        if PAGE.read_text() != text:
            print(f"{PAGE} is stale: run python -m benchmarks.results", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
