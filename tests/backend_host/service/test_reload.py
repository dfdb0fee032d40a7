"""A configuration that is read again, as far as that is no daemon's affair: test_service.py has the whole."""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from backend_host.config import load_as_said
from backend_host.service.kept import KeptVGpu, KeptVGpus
from backend_host.service.reload import Reloading


class PlayedKept:
    """What it is told to keep."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []
        self.now: Mapping[str, KeptVGpu] = {}

    def begin(self, wanted: Mapping[str, KeptVGpu]) -> None:
        self.told += [(name, each.entitlement.weight) for name, each in wanted.items()]
        self.now = wanted

    def swap(self, wanted: Mapping[str, KeptVGpu]) -> Mapping[str, KeptVGpu]:
        self.begin(wanted)
        return wanted


def test_what_was_read_while_vgpus_had_to_wait_is_what_is_kept(tmp_path: Path) -> None:
    """Programs of an earlier release may run for days."""
    file = tmp_path / "vgpus.d/web.toml"
    file.parent.mkdir()
    file.write_text('shm = "/dev/shm/web"\n')
    (tmp_path / "config.toml").write_text("")
    kept = PlayedKept()
    config = load_as_said(tmp_path / "config.toml", state_dir=tmp_path)
    reloading = Reloading(config, cast(KeptVGpus, kept), lambda _: None, lambda _: None)
    file.write_text('shm = "/dev/shm/web"\nweight = 3\n')
    [change] = reloading.run()
    assert (change.key, kept.told) == ("vgpus.d.web", [])
    reloading.begin()
    assert kept.told == [("web", 3)]
    file.unlink()
    [change] = reloading.run()
    assert (change.key, change.new, kept.now) == ("vgpus.d.web", None, {})
