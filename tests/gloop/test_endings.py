"""Host loops that end, are many, or lack something: what is left of them, and what they say."""

import pytest

from tests.gloop.conftest import Runner


def said(runner: Runner, what: str, *arguments: object) -> list[str]:
    result = runner.run("endings", what, *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def test_host_loops_beside_and_after_each_other(runner: Runner) -> None:
    assert said(runner, "loops") == [str(2 * 3 * 3)]


def test_a_host_loops_word_is_its_own_also_after_a_reset(runner: Runner) -> None:
    assert said(runner, "reset") == ["0 0", "0 0"]


def test_a_launch_leaves_the_threads_device_as_it_is(native: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRGV_SOFTGPU_DEVICES", "2")
    assert said(native, "device") == ["1"]


def test_without_memory_operations_there_is_no_word(native: Runner) -> None:
    assert said(native, "words") == ["3"]
