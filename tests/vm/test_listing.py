"""`fairgv-host list` beside a real libvirtd: domains that are served, that cannot be, and that nobody asked for; none is booted."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backend_host.cli import host_command
from backend_host.vm.nova import NAMESPACE
from backend_host.vm.private_libvirt import PrivateLibvirt
from backend_host.vm.region_file import remove_region_file
from tests.end_to_end.host import Host, start_host, stop_host

pytestmark = pytest.mark.vm

DEVICE = "<shmem name='{}'><model type='ivshmem-plain'/><size unit='M'>16</size></shmem>"
DEFINITION = (
    "<domain type='qemu'><name>{}</name><memory unit='MiB'>64</memory>"
    "<os><type arch='x86_64' machine='q35'>hvm</type></os><devices>{}</devices></domain>"
)
DEVICES = {"listed-plain": "", "listed-one": "fairgv-same", "listed-two": "fairgv-same", "listed-other": "fairgv-other"}


class Scene:
    """A daemon that serves what was attached to it, and domains."""

    def __init__(self, instance: PrivateLibvirt, host: Host, folder: Path) -> None:
        self._uri = instance.uri
        self._folder = folder
        self.state_dir = host.state_dir

    def virsh(self, *arguments: str) -> None:
        subprocess.run(["virsh", "-q", "-c", self._uri, *arguments], check=True, capture_output=True)

    def define(self, name: str, device: str) -> None:
        path = self._folder / "definition.xml"
        path.write_text(DEFINITION.format(name, DEVICE.format(device) if device else ""))
        self.virsh("define", str(path))

    def listed(self, *options: str) -> dict[str, dict[str, Any]]:
        answer = host_command(self.state_dir, "list", "--json", *options)
        assert (answer.returncode, answer.stderr) == (0, "")
        return {each["name"]: each for each in json.loads(answer.stdout)}


@pytest.fixture
def scene(instance: PrivateLibvirt, tmp_path: Path) -> Iterator[Scene]:
    host = start_host(tmp_path, libvirt_uri=instance.uri, nr_warm_workers=0)
    scene = Scene(instance, host, tmp_path)
    for name, device in DEVICES.items():
        scene.define(name, device)
    yield scene
    stop_host(host)
    for name in DEVICES:
        scene.virsh("undefine", name)
    for shm_name in filter(None, DEVICES.values()):
        remove_region_file(shm_name)


def test_domains_are_listed_with_state_and_reason(scene: Scene) -> None:
    assert "listed-plain" not in scene.listed()
    assert "fairgv-host attach listed-plain" in scene.listed("--all")["listed-plain"]["why_not"]
    attached = host_command(scene.state_dir, "attach", "listed-plain", "--weight", "3", "--region", "16M")
    assert attached.returncode == 0, attached.stderr
    found = scene.listed()
    plain, other = found["listed-plain"], found["listed-other"]
    assert (plain["is_served"], plain["state"], plain["weight"], plain["gpu_number"]) == (True, "shut off", 3, 0)
    assert (other["is_served"], other["weight"]) == (False, 1)
    assert 'adopt = "attached"' in other["why_not"]
    for name in ("listed-one", "listed-two"):
        assert "several domains have the device" in found[name]["why_not"]
    scene.virsh("start", "listed-plain", "--paused")
    assert scene.listed()["listed-plain"]["state"] == "paused"
    scene.virsh("destroy", "listed-plain")
    assert scene.listed()["listed-plain"]["state"] == "shut off"
    assert host_command(scene.state_dir, "detach", "listed-plain").returncode == 0


def test_a_name_that_nobody_has(scene: Scene) -> None:
    refused = host_command(scene.state_dir, "set", "listed-nobody", "--weight", "2")
    assert refused.returncode == 1
    assert refused.stderr.startswith("fairgv-host: there is no vGPU called listed-nobody; see: fairgv-host list")
    assert "listed-plain" in refused.stderr, "the domains that there are"


def test_a_domain_of_nova_gets_what_its_flavor_says(scene: Scene) -> None:
    """By a command that says nothing, and by one that says otherwise."""
    specs = "<nova:extraSpec name='fairgv:weight'>3</nova:extraSpec><nova:extraSpec name='fairgv:memory'>64M</nova:extraSpec>"
    flavor = f"<nova:flavor name='gpu'><nova:extraSpecs>{specs}</nova:extraSpecs></nova:flavor>"
    flavor = flavor.replace("<nova:flavor", f"<nova:flavor xmlns:nova='{NAMESPACE}'")
    of_nova = ("--uri", NAMESPACE, "--key", "nova", "--set", f"<instance>{flavor}</instance>")
    scene.virsh("metadata", "listed-plain", "--config", *of_nova)
    for options, weight in (((), 3), (("--weight", "5"), 5)):
        answer = host_command(scene.state_dir, "attach", "listed-plain", "--region", "16M", *options)
        assert answer.returncode == 0, answer.stderr
        entry = scene.listed()["listed-plain"]
        assert (entry["weight"], entry["quota_bytes"]) == (weight, 64 << 20)
        assert host_command(scene.state_dir, "detach", "listed-plain").returncode == 0
