"""Ctrl-C while a command is loaded."""

import signal
import subprocess
import sys

import pytest

from tests.scheduler.test_version import MODULES, ROOT, SCRIPTS

LOADED = """
import signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {loaded!r}:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from {module} import {function}
sys.argv = ["command", "--version"]
sys.exit({function}())
"""


def loaded(program: str) -> subprocess.CompletedProcess[str]:
    module, function = SCRIPTS[program].split(":")
    code = LOADED.format(module=module, function=function, loaded=MODULES[program])
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("program", SCRIPTS)
def test_it_ends_without_a_word(program: str) -> None:
    ended = loaded(program)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.parametrize("program", SCRIPTS)
def test_where_it_is_ignored_it_stays_so(program: str) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        ended = loaded(program)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith(f"{program} ")


@pytest.mark.parametrize("program", SCRIPTS)
def test_a_command_that_is_loaded_has_it_as_it_was(program: str) -> None:
    module, function = SCRIPTS[program].split(":")
    code = (
        f"import signal, sys, {MODULES[program]} as command; from {module} import {function}\n"
        f"command.main = lambda: print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)\n{function}()"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout == "True\n"
