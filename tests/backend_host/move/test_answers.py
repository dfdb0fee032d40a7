"""What the daemon answers to who asks for moves."""

from dataclasses import fields, replace

import pytest

from backend_host.device.failure import Failure
from backend_host.entitlement import Entitlement
from backend_host.errors import RefusedError
from backend_host.move.interface import Move, Moves
from backend_host.move.plan import Plan
from backend_host.service.draining import Draining
from tests.backend_host.move.conftest import MovingHost
from tests.backend_host.move.played import PlayedMove, PlayedMoves
from tests.backend_host.test_json import documented

GIB = 1 << 30


def test_the_played_are_what_the_real_are(host: MovingHost) -> None:
    moves: Moves = host.moves
    host.opened("web")
    move: Move = moves.start("web", "1")
    assert isinstance(moves, PlayedMoves)
    assert isinstance(move, PlayedMove)


def test_a_plan_of_now(host: MovingHost) -> None:
    host.opened("web")
    plan = host.ask("plan", name="web", to=host.gpus[2].device.uuid)["plan"]
    assert plan == {
        "name": "web",
        "from": 0,
        "to": 2,
        "mover": "checkpoint",
        "nr_programs": 0,
        "memory_bytes": 0,
        "duration_ns": 0,
        "pause_ns": 0,
        "no_replay": [],
    }
    assert len(plan) == len(fields(Plan))
    assert host.moves.find("web") is None


def refused(host: MovingHost, operation: str, **arguments: str) -> str:
    with pytest.raises(RefusedError) as error:
        host.ask(operation, **arguments)
    return str(error.value)


def test_why_there_is_no_plan(host: MovingHost) -> None:
    host.opened("web", Entitlement(request=30.0, quota_bytes=GIB))
    assert refused(host, "plan", name="nobody", to="1") == "there is no vGPU called nobody; see: fairgv-host list"
    assert refused(host, "plan", name="web", to="7") == "no Gpu of this host is called '7'; see: fairgv-host devices"
    assert refused(host, "plan", name="web", to="0") == "web cannot move to GPU 0: it is there already"
    assert "no mover is called 'other'" in refused(host, "plan", name="web", to="1", mover="other")
    host.opened("db", Entitlement(gpu="1", request=80.0, quota_bytes=host.gpus[1].device.memory_bytes - GIB // 2))
    assert refused(host, "plan", name="web", to="1") == (
        "web cannot move to GPU 1: GPU 1 has 512 MiB left for memory quotas, where 1 GiB are asked for (--memory) and 20 % left for requests, "
        "where 30 % are asked for (--request)"
    )
    host.ask("drain", gpu="2")
    assert refused(host, "migrate", name="web", to="2") == (
        "web cannot move to GPU 2: GPU 2 is drained (until fairgv-host undrain 2)"
    )
    host.gpus[2].ward.failure = Failure("Xid 79")
    assert refused(host, "migrate", name="web", to="2") == (
        "web cannot move to GPU 2: GPU 2 is out, as it has failed: Xid 79"
    )


def test_who_is_on_its_way_there_counts(host: MovingHost) -> None:
    for name, gpu in (("web", "0"), ("db", "2")):
        host.opened(name, Entitlement(gpu=gpu, request=40.0, quota_bytes=host.gpus[0].device.memory_bytes // 2 + GIB))
    web = host.vgpus.named("web")
    host.vgpus.reserve(web, host.gpus[1])
    assert "GPU 1 has 1 GiB left for memory quotas" in refused(host, "plan", name="db", to="1")
    host.vgpus.give_up(web)
    assert host.ask("plan", name="db", to="1")["plan"]["to"] == 1


def test_the_vgpu_itself_keeps_nothing_from_it(host: MovingHost) -> None:
    """What it has where it is it does not have on the target, yet."""
    host.opened("web", Entitlement(request=90.0, quota_bytes=host.gpus[0].device.memory_bytes))
    assert host.ask("plan", name="web", to="1")["plan"]["to"] == 1


def test_a_move_and_its_end(host: MovingHost) -> None:
    host.opened("web")
    assert refused(host, "migration", name="web") == "no vGPU called web has moved"
    assert host.ask("migrate", name="web", to="1")["text"] == "web moves from GPU 0 to GPU 1"
    move = host.moves.all["web"]
    move.change()
    migration = host.ask("migration", name="web")["migration"]
    assert (migration["stage"], migration["has_changed"], migration["pause_ns"]) == ("changing", True, None)
    assert refused(host, "abort", name="web") == "web is changing its Gpu"
    move.end(1.25)
    migration = host.ask("migration", name="web")["migration"]
    assert (migration["stage"], migration["pause_ns"], migration["plan"]["to"]) == ("done", 1_250_000_000, 1)
    assert refused(host, "abort", name="web") == "web is not on its way to another Gpu"


def test_a_move_that_is_aborted(host: MovingHost) -> None:
    host.opened("web")
    host.ask("migrate", name="web", to="1")
    assert host.ask("abort", name="web")["text"] == "web comes back to GPU 0"
    assert host.ask("migration", name="web")["migration"]["stage"] == "aborted"
    host.moves.all["web"].reason = "\x1b[2J does not stand still"
    assert host.ask("migration", name="web")["migration"]["reason"] == "\\x1b[2J does not stand still"


def test_who_leaves_goes_where_a_new_one_would(host: MovingHost) -> None:
    host.opened("web")
    host.opened("heavy", Entitlement(weight=9))
    found = host.ask("leaving", gpu="0")
    assert [(plan["name"], plan["to"]) for plan in found["plans"]] == [("web", 2)]
    assert found["stay"] == []


def test_who_comes_neither_leaves_nor_stays(host: MovingHost) -> None:
    """Until its move is over, wherever it is."""
    host.opened("web", Entitlement(gpu="1"))
    host.ask("migrate", name="web", to="0")
    assert host.ask("leaving", gpu="0") == {"plans": [], "stay": [], "coming": ["web"]}
    host.moves.all["web"].plan = replace(host.moves.all["web"].plan, target=1)
    assert host.ask("leaving", gpu="1") == {"plans": [], "stay": [], "coming": ["web"]}
    host.moves.all["web"].end()
    assert [each["name"] for each in host.ask("leaving", gpu="1")["stay"]] == ["web"]
    assert host.ask("leaving", gpu="1")["coming"] == []


def test_what_is_told_has_the_keys_of_the_page(host: MovingHost) -> None:
    host.opened("web")
    assert host.ask("plan", name="web", to="1")["plan"].keys() == documented("plan")
    host.ask("migrate", name="web", to="1")
    assert host.ask("migration", name="web")["migration"].keys() == documented("migration")
    assert Draining(host, "0", is_quiet=True).told().keys() == documented("drained")  # type: ignore[arg-type]


def test_why_others_stay(host: MovingHost) -> None:
    host.opened("bound", Entitlement(gpu="0"))
    host.opened("large", Entitlement(gpu=host.gpus[1].device.uuid, request=60.0))
    host.opened("other", Entitlement(gpu="2", request=70.0))
    host.opened("first", Entitlement(request=50.0))
    assert {each["name"]: each["why"] for each in host.ask("leaving", gpu="0")["stay"]} == {
        "bound": "it is to be there (--gpu); to move it: fairgv-host migrate bound --to GPU",
        "first": "GPU 1 has 40 % left for requests, where 50 % are asked for (--request); "
        "GPU 2 has 30 % left for requests, where 50 % are asked for (--request)",
    }
    assert host.ask("migrate", name="bound", to="2")["plan"]["to"] == 2


def test_the_only_gpu_keeps_all(host: MovingHost) -> None:
    host.opened("web")
    del host.gpus[1:]
    assert host.ask("leaving", gpu="0") == {
        "plans": [],
        "stay": [{"name": "web", "why": "this host has no other Gpu"}],
        "coming": [],
    }
