"""`fairgv-host doctor` beside a daemon that runs: it asks that one, and opens no device of its own."""

import json

from backend_host.cli import host_command
from tests.end_to_end.host import Host


def test_a_daemon_that_runs(host: Host) -> None:
    answer = host_command(host.state_dir, "doctor", "--json")
    found = {check["check"]: check for check in json.loads(answer.stdout)}
    pid = host.status()["pid"]
    assert found["daemon"]["state"] == "pass"
    assert f"process {pid}," in found["daemon"]["text"]
    assert found["state directory"]["state"] == "pass"
    assert found["device"]["state"] == "pass", "softgpu was not asked for here, but is what this daemon serves"
    assert host.status()["gpus"][0]["name"] in found["device"]["text"]
