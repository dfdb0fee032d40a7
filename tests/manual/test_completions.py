"""Completions: shells read them, and bash completes commands, options, choices and files with them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from manual.commands import COMMANDS, Command, below
from manual.completions import SHELLS, completion

NAMES = {command.name: command for command in COMMANDS}
COMPLETE = """
. "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
"_shtab_${1//-/_}" "$1" "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def write(folder: Path, command: Command, shell: str) -> Path:
    file = folder / SHELLS[shell].format(command.name)
    file.write_text(completion(command, shell))
    return file


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_shells_read_them(tmp_path: Path, command: Command, shell: str) -> None:
    file = write(tmp_path, command, shell)
    text = file.read_text()
    assert text.endswith("\n")
    names = [name for parser in below(command.parser()) for action in parser._actions for name in action.choices or ()]
    assert [name for name in names if str(name) not in text] == []
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    read = subprocess.run([shell, "-n", file], capture_output=True, text=True, check=False)
    assert (read.returncode, read.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("fairgv-host doc", {"doctor"}),
        ("fairgv-host st", {"start", "status", "stop"}),
        ("fairgv-host config ", {"check", "show"}),
        ("fairgv-host start --device ", {"auto", "cuda", "soft"}),
        ("fairgv-host start --allow-missing-wall n", {"net"}),
        ("fairgv-host attach --we", {"--weight"}),
        ("fairgv-run --tr", {"--trace"}),
        ("fairgv-bench suite qu", {"quick"}),
        ("fairgv-sim --preem", {"--preemptive"}),
    ],
)
def test_bash_completes(tmp_path: Path, words: str, expected: set[str]) -> None:
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    given = words.split(" ")
    file = write(tmp_path, NAMES[given[0]], "bash")
    answer = subprocess.run(
        ["bash", "-c", COMPLETE, "bash", file, *given], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert answer.stderr == ""
    assert set(answer.stdout.split()) == expected


def test_bash_completes_files(tmp_path: Path) -> None:
    file = write(tmp_path, NAMES["fairgv-host"], "bash")
    (tmp_path / "settings.toml").touch()
    for words in (["config", "check"], ["start", "--config"]):
        given = ["fairgv-host", *words, f"{tmp_path}/set"]
        answer = subprocess.run(
            ["bash", "-c", COMPLETE, "bash", file, *given], capture_output=True, text=True, check=False
        )
        assert answer.stdout.split() == [f"{tmp_path}/settings.toml"]
