"""Guests that share the device: what a system is to the daemon."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.experiments import sharing
from benchmarks.guests import NATIVE, Setting
from benchmarks.systems import BURSTS, OURS, in_words
from benchmarks.workloads import spin


@pytest.mark.parametrize(
    ("system", "policy", "daemon"), [(BURSTS, OURS, {"quota": "bursts"}), (OURS, OURS, {}), (NATIVE, NATIVE, {})]
)
def test_turns_by_bursts_are_the_same_policy_with_another_setting(
    system: str, policy: str, daemon: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    @contextlib.contextmanager
    def open_session(system: str, setting: Setting, *_: object) -> Iterator[None]:
        opened.append((system, setting.daemon))
        yield

    monkeypatch.setattr(sharing, "open_session", open_session)
    monkeypatch.setattr(sharing, "run_together", lambda *_: ())
    workload = spin(500, 1)
    sharing.together(system, sharing.Mixture("spin", (1, 1), (workload, workload)), Setting("soft"), 1.0)
    assert opened == [(policy, daemon)]


def test_plots_have_words_for_bursts() -> None:
    assert in_words(BURSTS) == "turns by bursts"
