"""`make attacks`, some seconds of it, and a minute of model time."""

import re
import subprocess
import sys

import pytest

from backend_host.config import PACKAGE_ROOT
from tests.endurance.attacks import WEIGHTS, Outcome, attack


def test_minutes_of_model_time_beside_random_bytes_cost_neighbours_little_and_nobody_innocent() -> None:
    command = [sys.executable, "-m", "tests.endurance.attack_model", "--hours", "0.03"]
    done = subprocess.run(command, cwd=PACKAGE_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [nr_apart] = re.findall(r"apart (\d+) times", done.stdout)
    assert int(nr_apart) > 0


@pytest.mark.parametrize("how", ["random grant, fast", "takes turns, and pays"])
def test_neighbours_of_one_that_is_not_known_go_on_and_are_not_blamed(how: str) -> None:
    outcome = attack(how, 3, is_audited=True)
    assert outcome.nr_apart > 0
    assert set(outcome.blamed) <= {outcome.attacker}
    assert min(outcome.parts[:-1]) > 0


def test_a_share_is_what_was_got_of_what_was_due() -> None:
    outcome = Outcome("honest", is_audited=False, parts=[0.125, 0.5, 0.375])
    assert sum(WEIGHTS) == 4
    assert outcome.shares() == [0.5, 1.0]
