"""Who may do what with a daemon that is a service: users by group, and their limits."""

import os
from typing import Any

from backend_host.ipc import MAX_CONNECTIONS
from tests.end_to_end.host import PROGRAMS, wait_until
from tests.end_to_end.service_host import (
    ADMIN_GROUP,
    COMMAND,
    GROUP,
    HOLD,
    IS_ROOT_NEEDED,
    OTHER,
    REGION_BYTES,
    RUN,
    STRANGER,
    USER,
    Service,
    as_user,
    ask_as,
)

pytestmark = IS_ROOT_NEEDED
CHANGES: list[dict[str, Any]] = [
    {"op": "attach", "domain": "vm"},
    {"op": "detach", "domain": "vm"},
    {"op": "set", "name": "mine", "weight": 3},
    {"op": "unban", "name": "mine"},
    {"op": "reload"},
    {"op": "stop"},
]


def test_a_stranger_gets_one_sentence(service: Service) -> None:
    service.start()
    for _ in range(3):
        for request in ({"op": "status"}, {"op": "open"}, {"op": "stop"}):
            [answer] = ask_as(service, STRANGER, [], request)
            assert f"members of the group {GROUP} may look" in answer["error"]
            assert f"usermod -aG {GROUP} {STRANGER}" in answer["error"]
    assert service.vgpus() == {}


def test_a_member_may_look_and_no_more(service: Service) -> None:
    service.start()
    looks: list[dict[str, Any]] = [{"op": "status"}, {"op": "list"}, {"op": "grants"}]
    answers = ask_as(service, USER, [GROUP], *looks, {"op": "open", "name": f"{USER}-mine"}, *CHANGES)
    assert all("error" not in answer for answer in answers[:4])
    assert all(f"only members of the group {ADMIN_GROUP} may do this" in answer["error"] for answer in answers[4:])


def test_an_administrator_may_change_and_knows_no_limits(service: Service) -> None:
    service.start()
    opens: list[dict[str, Any]] = [
        {"op": "open", "name": f"v{number}", "weight": 50, "region_bytes": REGION_BYTES} for number in range(6)
    ]
    answers = ask_as(service, USER, [ADMIN_GROUP], *opens, {"op": "set", "name": "v0", "weight": 3}, {"op": "reload"})
    assert [answer.get("error") for answer in answers] == [None] * 8
    ask_as(service, USER, [ADMIN_GROUP], {"op": "stop"})
    wait_until(lambda: not (service.state_dir / "control.sock").exists(), "it stops")


def test_limits_of_a_user_hold_for_all_vgpus_together(service: Service) -> None:
    service.write(users_text='vgpus = 3\nweight = 5\nmemory_bytes = "4G"\nrequest = 20\n')
    service.start()

    def opened(**arguments: object) -> dict[str, object]:
        return {"op": "open", "region_bytes": REGION_BYTES, **arguments}

    refused = f"ask a member of {ADMIN_GROUP} to raise"
    answers = ask_as(
        service,
        USER,
        [GROUP],
        opened(weight=6),
        opened(request=30),
        opened(memory_bytes="5G"),
        opened(name=f"{USER}-a", weight=4, request=20, memory_bytes="3G"),
        opened(weight=2, memory_bytes="1G"),
        opened(request=1, memory_bytes="1G"),
        opened(memory_bytes="2G"),
        opened(name=f"{USER}-b"),
        opened(name=f"{USER}-c"),
        opened(name=f"{USER}-a", weight=4),
        {"op": "status"},
    )
    for number, sentence in {
        0: "would weigh 6 together, and a user's may weigh 5",
        1: "would request 30 % together, and a user's may request 20 %",
        2: "a user may have 4 GiB of device memory",
        4: "would weigh 6 together",
        5: "would request 21 % together",
        6: "has 1 GiB left",
        8: "would weigh 6 together",
    }.items():
        assert sentence in answers[number]["error"]
        assert refused in answers[number]["error"]
    assert all("error" not in answers[number] for number in (3, 7, 9)), "to join one that is there takes nothing more"
    [_, second] = answers[10]["vgpus"]
    assert second["quota_bytes"] == 1 << 30, "what is left of the user's"


def test_a_hundred_vgpus(service: Service) -> None:
    service.start()
    answers = ask_as(
        service,
        USER,
        [GROUP],
        *({"op": "open", "name": f"{USER}-{number}", "region_bytes": REGION_BYTES} for number in range(100)),
        {"op": "status"},
    )
    *opened, status = answers
    assert [("error" in answer) for answer in opened] == [False] * 4 + [True] * 96
    assert "a user may have 4: join one of them with --vgpu" in opened[50]["error"]
    assert len(status["vgpus"]) == 4
    assert "error" not in ask_as(service, OTHER, [GROUP], {"op": "open", "region_bytes": REGION_BYTES})[0]
    wait_until(lambda: not service.vgpus(), "they go with the connection")


def test_a_vgpu_of_another_user(service: Service) -> None:
    service.start()
    (service.kept / "theirs.toml").write_text(f"user = {OTHER}\nregion_bytes = {REGION_BYTES}\n")
    assert service.command("reload").returncode == 0
    with service.connect() as connection:
        os.close(connection.ask("open", name="roots", region_bytes=REGION_BYTES)["fd"])
        answers = ask_as(service, USER, [GROUP], {"op": "open", "name": "roots"}, {"op": "open", "name": "theirs"})
    assert [answer["error"] for answer in answers] == [
        "the vGPU roots belongs to somebody else (user 0): name another one by --vgpu",
        f"the vGPU theirs belongs to somebody else (user {OTHER}): name another one by --vgpu",
    ]


def test_nobody_takes_the_name_of_a_domain_to_come(service: Service) -> None:
    service.start()
    names = ["web", f"{OTHER}-x", f"{USER}", f"{USER}-x"]
    answers = ask_as(service, USER, [GROUP], *({"op": "open", "name": name} for name in names))
    assert all(f"begins with {USER}-: say --vgpu {USER}-" in answer["error"] for answer in answers[:3])
    assert answers[3]["name"] == f"{USER}-x"


def test_one_user_takes_no_more_connections_than_are_allowed(service: Service) -> None:
    service.start()
    result = as_user(HOLD, USER, [GROUP], str(service.state_dir / "control.sock"), str(MAX_CONNECTIONS + 1))
    assert result.returncode == 0, result.stderr
    assert f"has {MAX_CONNECTIONS} connections to the daemon" in result.stdout
    assert service.host.status()["vgpus"] == []


def test_a_member_runs_a_program_by_weight(service: Service) -> None:
    service.start()
    place, program = ("--state-dir", str(service.state_dir)), ("--", str(PROGRAMS / "vector_add"))
    result = as_user(RUN, USER, [GROUP], *place, "--weight", "2", *program)
    assert result.returncode == 0, result.stderr
    refused = as_user(RUN, USER, [GROUP], *place, "--weight", "9", *program)
    assert refused.returncode == 1
    assert "--weight 9: the vGPUs of 70001 would weigh 9 together" in refused.stderr


def test_without_the_groups_nothing_is_different(service: Service) -> None:
    service.write()
    service.file.write_text(
        service.file.read_text().replace(f'"{GROUP}"', '"nobody-has-it"').replace(f'"{ADMIN_GROUP}"', '"nor-this"')
    )
    service.start()
    assert (service.state_dir / "control.sock").stat().st_mode & 0o777 == 0o600
    result = as_user(COMMAND, USER, [], "--state-dir", str(service.state_dir), "status")
    assert result.returncode == 1
    assert "no permission for" in result.stderr
