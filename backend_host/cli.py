"""`fairgv-host`: start and stop the daemon, look at it, give virtual machines a vGPU and take it away."""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from backend_host import config_commands, hand_overs, output
from backend_host.arguments import name_argument, path_argument, take_state_dir
from backend_host.config import (
    PACKAGE_ROOT,
    Config,
)
from backend_host.config_options import add_settings, config_of, file_of, given_settings
from backend_host.entitlement import add_options, given_options, option_names
from backend_host.errors import ConfigError, DaemonNotRunningError, DaemonRunningError, FairGVError
from backend_host.ipc import Connection, Message, say_silent, to_type
from backend_host.launching import start_in_background, wait_for_end, wait_for_next
from backend_host.service import balancing, draining, migrating, suspending
from backend_host.service.commands import add_commands
from backend_host.sizes import size_argument
from backend_host.space import command as space
from backend_host.state_dir import SOCKET, default_state_dir, dir_of_commands
from backend_host.top import command as top
from scheduler.command_line import OutputError, Parser, abandon, finish
from scheduler.version import VersionAction

_LONG = "all columns, however wide"
_JSON = "for programs (docs/json.md has the keys); times in ns, sizes in bytes"


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; exit status 0, 1 for an error told in one line, 2 for wrong usage."""
    options = make_parser().parse_args(arguments)
    output.begin()
    try:
        status = int(options.run(options))
        finish()
        return status
    except (FairGVError, OutputError) as error:
        print(f"fairgv-host: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0 if options.run in (_top, _grants) else 130
    except BrokenPipeError:  # `fairgv-host status | head`
        abandon()
        return 1


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser: argparse.ArgumentParser = Parser(
        prog="fairgv-host",
        description="Gives KVM guests their weighted share of this host's GPUs.",
        epilog="Exit status: 0 done, 1 an error (one line says which and what to do), 2 wrong usage.",
    )
    parser.add_argument(
        "--state-dir",
        type=path_argument,
        help="where the daemon keeps its socket and log (default: /run/fairgv of root, else fairgv in $XDG_RUNTIME_DIR); one daemon for each",
    )
    parser.add_argument("--version", action=VersionAction)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    start = commands.add_parser("start", help="start the daemon", epilog="Example: fairgv-host start --device soft")
    add_settings(start)
    start.add_argument(
        "--foreground",
        action="store_true",
        help="stay in the foreground and log to stderr; exit status 78: to start it again would not help",
    )
    start.set_defaults(run=_start)

    config_commands.add_command(commands, add_settings, _show_config)

    doctor = commands.add_parser(
        "doctor",
        help="whether this host has what FairGV needs, and what to do about the rest",
        description="Looks at the host: virtual machines, device, memory, walls, the daemon. Each line says pass, warn or fail, and what to "
        "do. Exit status 1 when something fails.",
    )
    doctor.add_argument("--config", type=path_argument, metavar="FILE", help="the settings that `start` would have")
    doctor.add_argument("--json", action="store_true", help=_JSON)
    doctor.set_defaults(run=_doctor)

    add_commands(commands, _connect)

    commands.add_parser("stop", help="stop the daemon; programs that use a vGPU get a CUDA error").set_defaults(
        run=_stop
    )

    commands.add_parser(
        "restart",
        help="start the daemon anew, under running programs",
        description="Ends the daemon and starts the next one, of the release that is installed, with the settings of now. Programs go on: the "
        "next daemon takes them over (docs/restart.md).",
    ).set_defaults(run=_restart)

    status = commands.add_parser(
        "status",
        help="device, vGPUs, clients, what they did",
        description="The Gpus, the vGPUs on them and their programs. A vGPU is entitled to its part, by weight and bounds, of those that were "
        "active in the last second; beside that stands what it got. --long has the sums since its start.",
    )
    _add_views(status)
    status.set_defaults(run=_status)

    listing = commands.add_parser(
        "list",
        help="vGPUs and domains: state, served or why not, weight, quota, device",
        description="The vGPUs, and the domains that have the device and are not served, with the reason.",
    )
    _add_views(listing)
    listing.add_argument("--all", action="store_true", help="domains that have no device of ours, too")
    listing.set_defaults(run=_list)

    devices = commands.add_parser("devices", help="the Gpus of this host, and the vGPUs on each")
    _add_views(devices)
    devices.set_defaults(run=_devices)

    top.add_command(commands).set_defaults(run=_top)

    hand_overs.add_command(commands).set_defaults(run=_grants)

    _add_report(commands)

    attach = commands.add_parser(
        "attach",
        help="give a libvirt domain, or another virtual machine, a vGPU",
        description="Gives a libvirt domain a vGPU; with --shm, a virtual machine that libvirt does not know (docs/hosts.md).",
        epilog="Examples: fairgv-host attach web --weight 2; fairgv-host attach --shm /dev/shm/web web --weight 2",
    )
    attach.add_argument(
        "domain",
        type=name_argument,
        metavar="NAME",
        help="of the domain; with --shm, whatever the vGPU is to be called",
    )
    attach.add_argument(
        "--shm",
        type=path_argument,
        metavar="PATH",
        help="the file that QEMU's memory-backend-file made for the device ivshmem-plain; its size is the region's",
    )
    add_options(attach)
    attach.add_argument(
        "--region",
        type=size_argument,
        metavar="SIZE",
        help="of a domain: shared memory, a power of two (default 256M)",
    )
    attach.add_argument(
        "--doorbell",
        action="store_true",
        help="of a domain: sleeping programs and workers wake each other, with the kernel module in the guest (docs/vm.md)",
    )
    attach.set_defaults(run=_attach)

    change = commands.add_parser(
        "set",
        help="another entitlement for a vGPU, while it runs",
        epilog="Example: fairgv-host set web --weight 3 --limit 50",
    )
    change.add_argument("domain", type=name_argument, metavar="DOMAIN", help="or the name of any other vGPU")
    add_options(change, is_new=False)
    change.set_defaults(run=_set)

    unban = commands.add_parser(
        "unban",
        help="forgive a user or a domain whose kernels did not end",
        description="Forgives debts and lifts the ban of a user or a domain whose kernels kept the GPU from others. `status` shows them.",
        epilog="Example: fairgv-host unban alice",
    )
    unban.add_argument(
        "name",
        type=name_argument,
        metavar="NAME",
        help="a user, a domain or another virtual machine, or a vGPU of either",
    )
    unban.set_defaults(run=_unban)

    for those in (suspending, migrating, draining, balancing, space):
        those.add_commands(commands, _connect)

    detach = commands.add_parser("detach", help="take the vGPU away again", epilog="Example: fairgv-host detach web")
    detach.add_argument(
        "domain", type=name_argument, metavar="DOMAIN", help="or the name of a vGPU that was attached with --shm"
    )
    detach.set_defaults(run=_detach)
    take_state_dir(commands)
    return parser


def _add_views(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help=_JSON)
    parser.add_argument("--long", action="store_true", help=_LONG)


def _add_report(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    report = commands.add_parser(
        "report",
        help="the page of --web with the last hour in it, as one file",
        description="Writes the page that the daemon serves (start --web) with the last hour in it. The file opens in any browser, and asks "
        "nobody for anything.",
        epilog="Example: fairgv-host report monday.html",
    )
    report.add_argument("file", type=path_argument, metavar="FILE.html")
    report.set_defaults(run=_report)


def _show_config(options: argparse.Namespace) -> int:
    given = {**given_settings(options), "walls.allow_missing": options.allow_missing_wall}
    file = file_of(options)
    return config_commands.show(
        config_of(options), file if file and file.exists() else None, given, is_json=options.json
    )


def _connect(options: argparse.Namespace) -> Connection:
    return _connection(options, partial(say_silent, "fairgv-host"))


def _connection(options: argparse.Namespace, when_silent: Callable[[], None] | None = None) -> Connection:
    return Connection((options.state_dir or dir_of_commands(default_state_dir())) / SOCKET, when_silent)


def _start(options: argparse.Namespace) -> int:
    if options.foreground:
        return _start_in_foreground(options)
    config = config_of(options)
    try:
        Connection(config.socket_path).close()
    except DaemonNotRunningError:
        output.say(start_in_background(config))
        return 0
    raise DaemonRunningError(
        f"a daemon already runs in {config.state_dir}; see: {to_type(config.socket_path, 'status')}"
    )


def _start_in_foreground(options: argparse.Namespace) -> int:
    from backend_host.daemon import serve  # noqa: PLC0415 - half of a command's start, and here alone
    from backend_host.service import failing  # noqa: PLC0415 - as above
    from backend_host.service.manager import Manager  # noqa: PLC0415 - as above

    try:
        config = config_of(options)
    except ConfigError as error:
        print(f"fairgv-host: {error}", file=sys.stderr)
        return failing.exit_status(error, Manager.take(os.environ), options.state_dir or default_state_dir())
    return serve(config, None)


def _doctor(options: argparse.Namespace) -> int:
    from backend_host.doctor.command import run  # noqa: PLC0415 - it opens the worker's module, as no other command does

    return run(config_of(options), is_json=options.json)


def _stop(options: argparse.Namespace) -> int:
    with _connect(options) as connection:
        pid = int(connection.ask("stop")["pid"])
        wait_for_end(pid)
    return 0


def _restart(options: argparse.Namespace) -> int:
    with _connect(options) as connection:
        answer = connection.ask("restart")
        wait_for_end(int(answer["pid"]))
    config = Config.from_json(answer["config"])
    if answer["is_managed"]:
        wait_for_next(config)
        output.say("the daemon was started anew")
    else:
        output.say(start_in_background(config, answer["environment"]))
    return 0


def _status(options: argparse.Namespace) -> int:
    with _connect(options) as connection:
        status = connection.ask("status")
    if options.json:
        output.say_json(status)
    else:
        from backend_host import tables  # noqa: PLC0415 - with a library that only people need

        output.show(tables.status(status, is_long=options.long), is_wide=options.long)
    return 0


def _list(options: argparse.Namespace) -> int:
    with _connect(options) as connection:
        answer = connection.ask("list", all=options.all)
    entries: list[Message] = answer["entries"]
    if options.json:
        output.say_json(entries)
    else:
        from backend_host import tables  # noqa: PLC0415 - with a library that only people need

        output.show(tables.listed(entries, is_long=options.long), is_wide=options.long)
    if answer["trouble"]:
        print(f"fairgv-host: domains that are not served may be missing: {answer['trouble']}", file=sys.stderr)
    return 0


def _devices(options: argparse.Namespace) -> int:
    with _connect(options) as connection:
        gpus: list[Message] = connection.ask("status")["gpus"]
    if options.json:
        output.say_json(gpus)
    else:
        from backend_host import tables  # noqa: PLC0415 - with a library that only people need

        output.show(tables.gpus(gpus, is_long=options.long), is_wide=options.long)
    return 0


def _top(options: argparse.Namespace) -> int:
    return top.run(options, lambda: _connection(options))


def _grants(options: argparse.Namespace) -> int:
    with _connect(options) as connection:
        hand_overs.show(
            lambda after: connection.ask("grants", after=after, gpu=options.gpu),
            is_followed=options.follow,
            is_json=options.json,
        )
    return 0


def _report(options: argparse.Namespace) -> int:
    from backend_host.web.report import write  # noqa: PLC0415 - needed here alone

    with _connect(options) as connection:
        write(options.file, connection.ask("report"))
    output.say(f"written: {options.file}")
    return 0


def _attach(options: argparse.Namespace) -> int:
    if options.shm is not None:
        return _attach_file(options)
    with _connect(options) as connection:
        answer = connection.ask(
            "attach",
            domain=options.domain,
            region_bytes=options.region,
            has_doorbell=options.doorbell,
            **given_options(options),
        )
    output.say(answer["text"])
    return 0


def _attach_file(options: argparse.Namespace) -> int:
    if options.region is not None or options.doorbell:
        raise FairGVError(
            "--region and --doorbell are of domains: with --shm the region is as large as its file, and QEMU's device ivshmem-plain has no bell"
        )
    with _connect(options) as connection:
        path = str(options.shm.absolute())
        output.say(connection.ask("attach", name=options.domain, shm=path, **given_options(options))["text"])
    return 0


def _set(options: argparse.Namespace) -> int:
    changes = given_options(options)
    if not changes:
        raise FairGVError(f"nothing to change: give {option_names()}")
    with _connect(options) as connection:
        answer = connection.ask("set", name=options.domain, **changes)
    output.say(answer["text"])
    return 0


def _unban(options: argparse.Namespace) -> int:
    with _connect(options) as connection:
        output.say(connection.ask("unban", name=options.name)["text"])
    return 0


def _detach(options: argparse.Namespace) -> int:
    with _connect(options) as connection:
        output.say(connection.ask("detach", domain=options.domain)["text"])
    return 0


def host_command(state_dir: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs `fairgv-host` of this installation as a child; for the demo and the tests."""
    command = [sys.executable, "-P", "-m", "backend_host.cli", "--state-dir", str(state_dir), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE_ROOT)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


if __name__ == "__main__":
    sys.exit(main())
