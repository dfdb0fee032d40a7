"""Pictures come from the committed documents, the same ones each time, and what is stale is found."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.pictures import ALL, PICTURES, digest, draw_all, drawn, main, source, stale
from benchmarks.style import THEMES
from tests.benchmarks.test_shares_over_time import record

MOST_BYTES = 60_000
[SHARES] = [picture for picture in ALL if picture.name == "shares"]


def write(folder: Path, name: str, device: str, date: str) -> dict[str, Any]:
    machine = {"machine": "2 cores, Linux 6", "command": "fairgv-bench shares-over-time"}
    document = {"experiment": "shares-over-time", "device": device, "date": date, "records": [record()], **machine}
    (folder / f"{name}.json").write_text(json.dumps(document))
    return document


def device_of(folder: Path) -> str:
    """Of what the picture would be made of."""
    document = source(SHARES, folder)
    assert document is not None
    return str(document["device"])


def test_the_committed_ones_are_fresh_and_small() -> None:
    assert stale() == []
    assert all(path.stat().st_size < MOST_BYTES for path in PICTURES.glob("*.svg"))


@pytest.mark.parametrize("theme", THEMES)
def test_the_same_document_gives_the_same_picture(tmp_path: Path, theme: str) -> None:
    document = write(tmp_path, "one", "softgpu", "2026-01-02")
    image = drawn(SHARES, document, THEMES[theme])
    assert image == drawn(SHARES, document, THEMES[theme])
    text = image.decode()
    assert len(text.encode()) < MOST_BYTES
    assert digest(document) in text
    assert THEMES[theme].page in text
    words = re.sub(r"<[^>]*>", " ", text)
    for word in (
        "A, weight 1",
        "B, weight 3",
        "C comes, weight 4",
        "A, weight 1 → 5",
        "A 42 %",
        "entitled to",
        "softgpu",
    ):
        assert word in words


@pytest.mark.parametrize(
    ("name", "kind", "system"), [("due", "together", "native"), ("joins", "join and leave", "fair")]
)
def test_a_newer_document_without_what_is_drawn_is_passed_over(
    tmp_path: Path, name: str, kind: str, system: str
) -> None:
    [picture] = [each for each in ALL if each.name == name]
    rest = {"experiment": picture.experiment, "machine": "2 cores, Linux 6", "command": "fairgv-bench"}
    for device, date, (of, by) in (
        ("NVIDIA H200", "2026-01-02", (kind, system)),
        ("NVIDIA H100", "2026-01-03", ("alone" if kind != "together" else kind, "fair")),
    ):
        found = [{"kind": of, "mixture": "scan", "system": by, "guests": []}]
        (tmp_path / f"{device}.json").write_text(json.dumps({**rest, "device": device, "date": date, "records": found}))
    chosen = source(picture, tmp_path)
    assert chosen is not None
    assert chosen["device"] == "NVIDIA H200"


def test_a_gpu_is_shown_before_softgpu_and_the_newest_before_others(tmp_path: Path) -> None:
    assert source(SHARES, tmp_path) is None
    write(tmp_path, "a", "softgpu", "2026-01-04")
    write(tmp_path, "b", "NVIDIA H200", "2026-01-02")
    assert device_of(tmp_path) == "NVIDIA H200"
    write(tmp_path, "c", "NVIDIA H100", "2026-01-03")
    assert device_of(tmp_path) == "NVIDIA H100"


def test_what_is_stale_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results, folder = tmp_path / "results", tmp_path / "pictures"
    results.mkdir()
    draw_all(folder, results)
    assert "there is no document of shares-over-time" in capsys.readouterr().err
    assert stale(folder, results) == []
    write(results, "one", "softgpu", "2026-01-02")
    paths = sorted(SHARES.files(folder))
    assert stale(folder, results) == paths  # not drawn yet
    draw_all(folder, results)
    assert stale(folder, results) == []
    write(results, "one", "softgpu", "2026-01-03")
    assert stale(folder, results) == paths  # drawn of an older one
    (results / "one.json").unlink()
    assert stale(folder, results) == paths  # drawn of nothing that there is


def test_slides_have_png_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.pictures.ALL", (SHARES,))
    assert main(["--png", str(tmp_path)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shares-dark.png", "shares-light.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in tmp_path.iterdir())


def test_pictures_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "house.svg").write_text("<svg/>")
    assert stale(tmp_path, tmp_path) == []


def test_no_two_are_the_same_file() -> None:
    paths = [path for picture in ALL for path in picture.files(PICTURES)]
    assert len(paths) == len(set(paths))
