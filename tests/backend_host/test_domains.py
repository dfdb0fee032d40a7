"""Domains by what their definitions say, libvirt played: which Gpu a domain's vGPU is on, and when it goes elsewhere."""

import dataclasses
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backend_host import domains
from backend_host.entitlement import PLAIN, Changes, Entitlement
from backend_host.errors import RefusedError
from backend_host.service.events import UNCHANGED
from backend_host.vm.domain import Attachment, Sight
from backend_host.vm.errors import VmError
from ivshmem.region import survive_cuts
from tests.backend_host.played_libvirt import OFF, REGION_BYTES, Played, answering, fails, looking, playing
from tests.end_to_end.host import wait_until


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    yield from playing(tmp_path, monkeypatch)


def test_a_domain_goes_to_another_gpu_at_its_next_start(played: Played, caplog: pytest.LogCaptureFixture) -> None:
    assert played.vgpu(PLAIN).gpu_number == 0
    assert played.domains.uuids() == {"vm": "uuid"}
    assert played.vgpu(Entitlement(gpu="1")).gpu_number == 1, "one that is off has no program that could mind"
    assert played.vgpu(Entitlement(gpu="1"), run_id=5).gpu_number == 1
    changed = played.vgpu(Entitlement(weight=3, gpu="0"), run_id=5)
    assert (changed.gpu_number, changed.weight) == (1, 3), "the rest follows at once"
    assert played.vgpu(Entitlement(weight=3, gpu="0"), run_id=6).gpu_number == 0
    assert "ERROR" not in caplog.text


def test_a_domain_on_a_gpu_that_is_not_there(played: Played, caplog: pytest.LogCaptureFixture) -> None:
    before = played.vgpu(Entitlement(gpu="1"), run_id=5)
    with pytest.raises(ValueError, match="not enough values"):
        played.vgpu(Entitlement(gpu="7"), run_id=6)
    assert "domain vm is not served: no Gpu of this host is called '7'" in caplog.text
    after = played.vgpu(Entitlement(gpu="1"), run_id=6)
    assert dataclasses.replace(after, region_free_bytes=before.region_free_bytes) == before


def test_what_definitions_leave_out_follows_the_configuration(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    assert played.vgpu(PLAIN, run_id=5).weight == 1

    def look_at_all(_uri: str, unsaid: Entitlement) -> list[Sight]:
        [sight] = played.sights
        assert sight.attachment is not None
        return [dataclasses.replace(sight, attachment=dataclasses.replace(sight.attachment, entitlement=unsaid))]

    monkeypatch.setattr(domains, "look_at_all", look_at_all)
    played.domains.follow(Entitlement(weight=4))
    played.domains._look(None)
    [found] = played.registry.statistics()
    assert found.weight == 4


def test_a_region_that_was_cut_short_is_another_at_the_next_start(played: Played) -> None:
    survive_cuts()  # as the daemon does
    played.vgpu(PLAIN, run_id=5)
    path = Path("/dev/shm") / played.shm_name
    os.truncate(path, 0)
    played.vgpu(PLAIN, run_id=5)
    assert played.registry.cut_short() == {"vm"}
    assert played.vgpu(PLAIN, run_id=6).region_bytes == REGION_BYTES
    assert played.registry.cut_short() == frozenset()
    assert path.stat().st_size == REGION_BYTES


def test_a_look_that_failed_is_made_again(
    played: Played, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody calls for one when libvirt, which was there all the time, did not answer once. Meanwhile nothing changes."""
    before = played.vgpu(PLAIN, run_id=5)
    played.sights = [dataclasses.replace(sight, name="renamed") for sight in played.sights]
    looks: list[str] = []

    def look_at_all(_uri: str, _unsaid: Entitlement) -> list[Sight]:
        looks.append(played.registry.statistics()[0].name)
        if len(looks) < 3:
            raise VmError("it is busy")
        return played.sights

    monkeypatch.setattr(domains, "look_at_all", look_at_all)
    monkeypatch.setattr(domains, "_AGAIN_S", 0.01)
    with looking(played):
        wait_until(lambda: played.registry.statistics()[0].name == "renamed", "it was looked at again")
    assert looks == [before.name] * 3
    assert caplog.text.count("cannot look at domains, and tries again: it is busy") == 1
    assert played.domains._unseen_for == ""


def test_a_vgpu_whose_domain_libvirt_does_not_tell_of_waits_for_it(played: Played) -> None:
    """At the first look after a restart: its programs would be ended for nothing."""
    before = played.vgpu(PLAIN, run_id=5)
    known = played.sights
    played.restart()
    played.sights = [dataclasses.replace(sight, attachment=None, trouble="it does not tell") for sight in known]
    assert not played.domains._look(None), "it is looked at again"
    assert played.registry.statistics() == (before,)
    assert not played.is_claimed()
    played.sights = known
    assert played.domains._look(None)
    assert played.is_claimed()
    assert played.domains.uuids() == {"vm": "uuid"}


def test_a_vgpu_whose_domain_cannot_be_adopted_yet_waits_for_it(
    played: Played, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = played.vgpu(PLAIN, run_id=5)
    played.restart()
    with monkeypatch.context() as patch:
        patch.setattr(domains, "label_region", fails(VmError("no label")))
        assert not played.domains._look(None)
        assert not played.domains._look(None)
        assert caplog.text.count("domain vm is not served: no label") == 1, "not with each look"
        assert played.registry.statistics() == (before,)
    assert played.domains._look(None)
    assert played.is_claimed()


def test_a_domain_that_could_not_be_served_is_once_the_cause_has_gone(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libvirt tells nothing of what was in the way: a full /dev/shm, say."""
    played.vgpu(PLAIN, run_id=5)
    played.registry.remove_all()
    played.domains = played.another()
    is_in_the_way = True

    def label_region(*_: object) -> None:
        if is_in_the_way:
            raise VmError("no room")

    monkeypatch.setattr(domains, "label_region", label_region)
    monkeypatch.setattr(domains, "_TROUBLED_S", 0.01)
    with looking(played):
        wait_until(lambda: list(played.domains.troubles()) == ["uuid"], "it is not served")
        wait_until(played.domains._to_look_at.empty, "libvirt's word was heard")
        is_in_the_way = False
        wait_until(lambda: played.domains.uuids() == {"vm": "uuid"}, "it is served")
        wait_until(lambda: played.domains.troubles() == {}, "it has no trouble")


def test_a_vgpu_whose_domain_is_gone_goes_although_another_has_a_trouble(played: Played) -> None:
    """In the end: a trouble that lasts has looks made as long as something may be waiting for its end."""
    played.vgpu(PLAIN, run_id=5)
    known = played.sights
    played.restart()
    trouble = dataclasses.replace(known[0], uuid="other", name="other", attachment=None, trouble="it lasts")
    played.sights = [trouble]
    assert not played.domains._look(None)
    played.sights = [dataclasses.replace(trouble, trouble="")]
    assert played.domains._look(None)
    assert played.registry.statistics() == ()
    played.sights = [trouble]
    assert played.domains._look(None), "nothing waits"


def test_a_definition_that_asks_too_much_after_a_restart(played: Played) -> None:
    """It has the vGPU that it had once that is corrected."""
    played.vgpu(PLAIN, run_id=5)
    before = played.registry._vgpus["vm"]
    played.restart()
    played.registry.open_session("beside", Entitlement(request=80, gpu="0"), REGION_BYTES, os.getuid())
    played.vgpu(Entitlement(request=50), run_id=5)
    assert played.domains.uuids() == {}
    assert before.is_unclaimed
    assert before.caretaker.is_paused(), "as long as nobody tells how its machine is"
    assert played.vgpu(Entitlement(weight=3), run_id=5).weight == 3
    assert played.domains.uuids() == {"vm": "uuid"}
    assert played.registry._vgpus["vm"] is before
    assert not before.is_unclaimed


def test_a_definition_that_says_another_gpu_after_a_restart(played: Played) -> None:
    """Its programs go on, and the next start takes it there, as without a restart."""
    played.vgpu(PLAIN, run_id=5)
    before = played.registry._vgpus["vm"]
    played.restart()
    for _ in range(2):
        now = played.vgpu(Entitlement(weight=3, gpu="1"), run_id=5)
        assert (now.gpu_number, now.gpu, now.weight) == (0, "", 3), "the rest follows at once"
        assert played.registry._vgpus["vm"] is before
        assert played.is_claimed()
    assert played.vgpu(Entitlement(weight=3, gpu="1"), run_id=6).gpu_number == 1


@pytest.mark.parametrize("run_id", [6, OFF])
def test_another_gpu_after_a_restart_and_an_end(played: Played, run_id: int) -> None:
    """None of its programs lives any more that could mind."""
    played.vgpu(PLAIN, run_id=5)
    played.restart()
    assert played.vgpu(Entitlement(gpu="1"), run_id=run_id).gpu_number == 1
    assert played.domains.uuids() == {"vm": "uuid"}


def test_a_domain_that_waits_for_room_is_remembered(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only those are served that were attached."""
    played.vgpu(PLAIN)
    assert played.written() == ["uuid"]
    played.restart()
    played.domains = played.another(adopts_all=False)
    played.domains._remembered = {"uuid"}
    played.vgpu(PLAIN)
    with monkeypatch.context() as patch:
        patch.setattr(domains, "label_region", fails(VmError("no room")))
        [sight] = played.sights
        assert sight.attachment is not None
        larger = dataclasses.replace(sight.attachment, region_bytes=2 * REGION_BYTES)
        played.sights = [dataclasses.replace(sight, attachment=larger)]
        played.domains._look(None)
    assert played.domains.uuids() == {}
    assert played.domains.has_unseen
    assert played.written() == ["uuid"]
    played.domains._look(None)
    assert played.domains.uuids() == {"vm": "uuid"}
    assert not played.domains.has_unseen


def test_a_mistake_with_one_domain_costs_no_other(
    played: Played, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    played.vgpu(PLAIN)
    [sight] = played.sights
    assert sight.attachment is not None
    attachment = dataclasses.replace(
        sight.attachment, uuid="other", domain="other", shm_name=f"{played.shm_name}-other"
    )
    other = dataclasses.replace(sight, uuid="other", name="other", attachment=attachment)
    mad = dataclasses.replace(
        sight, uuid="mad", name="mad", attachment=dataclasses.replace(attachment, uuid="mad", domain="mad")
    )
    played.sights = [sight, mad, other]
    adopt = played.domains._adopt
    monkeypatch.setattr(
        *(
            played.domains,
            "_adopt",
            lambda each: adopt(each) if each.domain != "mad" else fails(OverflowError("high"))(),
        )
    )
    played.domains._look(None)
    played.domains._look(None)
    assert played.domains.uuids() == {"vm": "uuid", "other": "other"}
    assert caplog.text.count("domain mad is not served: ") == 1
    assert "Traceback" in caplog.text, "a mistake of ours is told with where it is"


def test_a_list_that_cannot_be_written_costs_no_domain(
    played: Played, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(played.domains._written, "write", fails(OSError(errno.ENOSPC, "No space left on device")))
        played.vgpu(PLAIN)
        assert not played.domains._look(None), "it is written again"
    assert played.domains.uuids() == {"vm": "uuid"}
    assert caplog.text.count("cannot be written down (No space left on device): make room in") == 1
    assert "ERROR" in caplog.text
    assert played.domains._look(None)
    assert played.written() == ["uuid"]


def test_a_mistake_does_not_end_the_thread(
    played: Played, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    played.vgpu(PLAIN, run_id=5)
    played.sights = [dataclasses.replace(sight, name="renamed") for sight in played.sights]
    looks: list[str] = []

    def look_at_all(_uri: str, _unsaid: Entitlement) -> list[Sight]:
        looks.append("look")
        if len(looks) < 2:
            raise KeyError(0)
        return played.sights

    monkeypatch.setattr(domains, "look_at_all", look_at_all)
    monkeypatch.setattr(domains, "_AGAIN_S", 0.01)
    with looking(played):
        wait_until(lambda: played.registry.statistics()[0].name == "renamed", "it was looked at again")
    assert "looking at domains failed; trying again" in caplog.text


def test_an_attach_that_cannot_be_written_down_is_served(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    """The definition has the device by then."""
    played.vgpu(PLAIN)
    [attachment] = (sight.attachment for sight in played.sights)
    assert attachment is not None
    played.registry.remove_all()
    played.domains = played.another()

    class Attaching:
        def __init__(self, _uri: str, _unsaid: Entitlement, before_plug: Callable[[Path], None], **_: object) -> None:
            self.before_plug = before_plug

        def attach(self, *_: object) -> Attachment | None:
            self.before_plug(Path("/dev/shm") / played.shm_name)
            return attachment

    monkeypatch.setattr(domains, "LibvirtDomains", Attaching)
    monkeypatch.setattr(domains, "unsaid_of", lambda _uri, _name, unsaid: unsaid)
    monkeypatch.setattr(domains, "connected", answering)
    monkeypatch.setattr(played.domains, "_watch", lambda: None)
    with monkeypatch.context() as patch:
        patch.setattr(played.domains._written, "write", fails(OSError(errno.ENOSPC, "No space left on device")))
        assert "has a vGPU" in played.domains.attach("vm", {}, REGION_BYTES, has_doorbell=False)["text"]
    assert played.domains.uuids() == {"vm": "uuid"}
    assert played.registry.statistics()[0].name == "vm"
    played.domains._look(None)
    assert played.written() == ["uuid"]


def changing(played: Played, error: VmError | None = None) -> Callable[..., object]:
    """As `LibvirtDomains`: a definition that can be changed, or that libvirt refuses to write."""

    class Changing:
        def __init__(
            self, _uri: str, _unsaid: Entitlement, before_change: Callable[[str, Entitlement], None] = lambda *_: None
        ) -> None:
            self.before_change = before_change

        def change(self, _name: str, changes: Changes) -> tuple[Attachment, bool]:
            [sight] = played.sights
            assert sight.attachment is not None
            entitlement = sight.attachment.entitlement.changed(changes)
            self.before_change(sight.uuid, entitlement)
            if error is not None:
                raise error
            changed = dataclasses.replace(sight.attachment, entitlement=entitlement)
            played.sights = [dataclasses.replace(sight, attachment=changed)]
            return changed, changed != sight.attachment

    return Changing


def test_what_is_refused_is_not_in_the_definition(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the domain would have no vGPU from the daemon's next start on."""
    played.vgpu(Entitlement(gpu="0"), run_id=5)
    played.registry.open_session("beside", Entitlement(request=60, gpu="0"), REGION_BYTES, os.getuid())
    before = played.sights
    monkeypatch.setattr(domains, "LibvirtDomains", changing(played))
    monkeypatch.setattr(domains, "connected", answering)
    with pytest.raises(RefusedError, match="--request"):
        played.domains.change("vm", {"request": 50.0})
    assert played.sights == before
    assert played.domains._look(None)
    assert played.domains.troubles() == {}
    changed, again = (played.domains.change("vm", {"request": 40.0}) for _ in range(2))
    assert "request 40" in changed["text"]
    assert (changed[UNCHANGED], again[UNCHANGED]) == (False, True)
    assert again["text"].startswith("vm has that already: weight 1, ")
    assert played.registry._vgpus["vm"].entitlement.request == 40


def test_what_libvirt_does_not_write_down_is_taken_back(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    played.vgpu(PLAIN, run_id=5)
    monkeypatch.setattr(domains, "LibvirtDomains", changing(played, VmError("it is full")))
    monkeypatch.setattr(domains, "connected", answering)
    with looking(played):
        with pytest.raises(VmError, match="it is full"):
            played.domains.change("vm", {"weight": 3})
        wait_until(
            lambda: played.registry._vgpus["vm"].entitlement.weight == 1, "the vGPU has what the definition says"
        )


def test_a_run_that_began_with_a_definition_that_asks_too_much(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is known to run once that is corrected; its programs were ended once."""
    told: list[str] = []
    monkeypatch.setattr(played.registry, "guest_gone", lambda _: told.append("gone"))
    monkeypatch.setattr(played.registry, "machine_started", lambda *_: told.append("started"))
    played.vgpu(Entitlement(gpu="0"), run_id=5)
    played.registry.open_session("beside", Entitlement(request=60, gpu="0"), REGION_BYTES, os.getuid())
    told.clear()
    for _ in range(2):
        played.vgpu(Entitlement(gpu="0", request=50), run_id=6)
    assert list(played.domains.troubles()) == ["uuid"]
    played.vgpu(Entitlement(gpu="0", request=40), run_id=6)
    played.vgpu(Entitlement(gpu="0", request=40), run_id=6)
    assert told == ["gone", "started"]


def test_a_look_is_made_again_where_a_domain_changed_meanwhile(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it saw may be older than that."""
    played.vgpu(PLAIN)
    looks: list[list[Sight]] = []

    def look_at_all(_uri: str, _unsaid: Entitlement) -> list[Sight]:
        looks.append(played.sights)
        if len(looks) == 1:
            played.domains.change("vm", {"weight": 3})
        return looks[-1]

    monkeypatch.setattr(domains, "LibvirtDomains", changing(played))
    monkeypatch.setattr(domains, "connected", answering)
    monkeypatch.setattr(domains, "look_at_all", look_at_all)
    assert played.domains._look(None)
    assert len(looks) == 2
    assert played.registry.statistics()[0].weight == 3
