"""
PTX as nvcc, NVRTC and Triton emit it, through the parser and back: the same tree, and the same machine code from NVIDIA's assembler.

`ptx_samples/make_samples.py` says how each sample was made. Debug information is what the parser drops; without it the original assembles to
what the printed text does, byte for byte.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from benchmarks.nvcc import find_nvcc
from cuda_api.ptx import format_module, parse
from cuda_api.ptx.syntax import Block, Instruction, Module, Statement

SAMPLES = sorted((Path(__file__).parent / "ptx_samples").glob("*.ptx"))

ASSEMBLED_BY_13_0 = (9, 0)
"""The newest PTX that every assembler of CUDA 13 takes."""


def _without_debug_information(text: str) -> str:
    """By lines and words, so that the parser is not asked what to leave out."""
    text = re.sub(r"^[ \t]*\.(loc|file)[ \t].*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^[ \t]*\.section[^{]*\{[^}]*\}", "", text, flags=re.MULTILINE)
    return re.sub(r"^(\.target.*), debug", r"\1", text, flags=re.MULTILINE)


def _assembled(text: str, folder: Path, architecture: str) -> bytes:
    """The code names the file it came from: two folders, one name."""
    folder.mkdir()
    (folder / "sample.ptx").write_text(text)
    command = [str(find_nvcc().path), "-cubin", f"-arch={architecture}", "-o", "sample.cubin", "sample.ptx"]
    if "cudaCDP" in text or "cudaLaunchDevice" in text:
        command.append("-rdc=true")  # functions of the device runtime are linked later
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return (folder / "sample.cubin").read_bytes()


def _instructions(statements: tuple[Statement, ...]) -> int:
    return sum(
        _instructions(statement.statements) if isinstance(statement, Block) else isinstance(statement, Instruction)
        for statement in statements
    )


def _instructions_of(module: Module) -> int:
    return sum(_instructions(function.body.statements) for function in module.functions if function.body)


def test_every_compiler_has_samples() -> None:
    assert {sample.name.split("_")[0] for sample in SAMPLES} == {"nvcc", "nvrtc", "triton"}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_printed_text_parses_to_the_same_tree(sample: Path) -> None:
    text = sample.read_text()
    module = parse(text)
    printed = format_module(module)
    assert parse(printed) == module
    assert len(re.findall(r"\.entry\b", printed)) == len(re.findall(r"\.entry\b", text)) > 0
    assert _instructions_of(module) > 0


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_printed_text_assembles_to_the_same_code(sample: Path, tmp_path: Path) -> None:
    text = sample.read_text()
    module = parse(text)
    if module.version > ASSEMBLED_BY_13_0:
        assert "triton" in sample.name, "what nvcc 13.0 made, it can assemble"
        text, module = _as_older_ptx(text)
    original = _assembled(_without_debug_information(text), tmp_path / "original", module.targets[0])
    assert _assembled(format_module(module), tmp_path / "printed", module.targets[0]) == original


def _as_older_ptx(text: str) -> tuple[str, Module]:
    """Triton asks for the newest version it knows, whatever the kernel uses."""
    older = re.sub(r"^\.version .*$", ".version 9.0", text, flags=re.MULTILINE)
    return older, parse(older)
