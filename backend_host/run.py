"""`fairgv-run`: a program of this host as a guest. Same library, same rings, no virtual machine.

It opens a vGPU at the daemon, points the program's loader at our library, and stays until the program ends; the vGPU goes with it. Where no
daemon runs it says so and starts a private one for the time of the program; on a device that another daemon serves it does so with --private
alone.

Signals: what a person sends to this process goes to the program; what the terminal sends (Ctrl-C) the program has had from it already.
They are taken one by one, blocked, so that none is lost while the program starts or ends. SIGKILL cannot be passed on: the kernel kills the
program when this process ends, and what else the program has started loses its vGPU, whose calls fail from then on.
Wrong when: the program is set-user-ID or changes its user (sudo), which makes the kernel forget this; it loses its vGPU all the same.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from backend_host.arguments import path_argument
from backend_host.children import ending_with_us
from backend_host.entitlement import add_options, given_options
from backend_host.errors import DaemonNotRunningError, FairGVError
from backend_host.ipc import Connection, say_silent
from backend_host.sizes import size_argument
from backend_host.state_dir import DEVICE_KINDS, SOCKET, default_state_dir, dir_of_commands
from scheduler.command_line import Parser
from scheduler.version import VersionAction

EXIT_FAILED = 1
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127
_FORWARDED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
_SI_KERNEL = 0x80
"""si_code of what the terminal sends, to the whole foreground process group (sigaction(2))."""


class ProgramError(FairGVError):
    """The program could not be executed; `status` is what a shell would give."""

    def __init__(self, program: str, error: OSError) -> None:
        super().__init__(f"cannot run {program}: {error.strerror}")
        self.status = EXIT_NOT_FOUND if isinstance(error, FileNotFoundError) else EXIT_NOT_EXECUTABLE


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: the program's own; 128 + n when signal n ended it; 127 when there is no such program, 126 when it cannot be executed, 1
    when FairGV could not serve it."""
    options = make_parser().parse_args(arguments)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        make_parser().error("no program given: fairgv-run -- PROGRAM ARGS")
    if options.private and options.state_dir is not None:
        make_parser().error("--private is a daemon of its own, and --state-dir says which other one: give one of them")
    try:
        with _connection(options) as connection:
            vgpu = connection.ask("open", name=options.vgpu, region_bytes=options.region, **given_options(options))
            with _watched(options) as variables:
                region = f"/proc/{os.getpid()}/fd/{vgpu['fd']}"
                return _run(command, {**variables, "FAIRGV_REGION": region}, Path(vgpu["guest_library"]))
    except ProgramError as error:
        print(f"fairgv-run: {error}", file=sys.stderr)
        return error.status
    except FairGVError as error:
        print(f"fairgv-run: {error}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = Parser(
        prog="fairgv-run",
        description="Runs a CUDA program of this host as a guest of FairGV.",
        epilog="The program's exit status is passed on; 127: there is no such program, 126: it cannot be executed, 1: it cannot be served. "
        "Example: fairgv-run --weight 2 -- ./vectorAdd",
    )
    parser.add_argument("--version", action=VersionAction)
    parser.add_argument("--vgpu", metavar="NAME", help="share the vGPU of this name; made if there is none")
    add_options(parser)
    parser.add_argument(
        "--region",
        type=size_argument,
        metavar="SIZE",
        help="most of pinned and managed memory, a power of two (default: half of the machine's memory)",
    )
    parser.add_argument(
        "--state-dir", type=path_argument, help="which daemon (default: the system's; a private one when none runs)"
    )
    parser.add_argument("--device", choices=DEVICE_KINDS, help="of a private daemon (default: auto)")
    parser.add_argument(
        "--private",
        action="store_true",
        help="by a daemon for this program alone, whichever others run, and without a word; beside their vGPUs no weight holds",
    )
    parser.add_argument(
        "--trace",
        type=path_argument,
        metavar="FILE",
        help="write each driver call as a line of JSON; to FILE.json or FILE.json.gz calls and kernels over time, for ui.perfetto.dev",
    )
    parser.add_argument("--count", action="store_true", help="print sums by driver call on stderr at the end")
    parser.add_argument("--json", type=path_argument, metavar="FILE", help="write the sums there, as JSON")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- PROGRAM ARGS")
    return parser


@contextlib.contextmanager
def _connection(options: argparse.Namespace) -> Iterator[Connection]:
    connection, reason = _system_connection(options)
    if connection is not None:
        with connection:
            yield connection
        return
    from backend_host.private_daemon import private_daemon  # noqa: PLC0415 - rare, and costs what a small program does

    with (
        private_daemon(options.device or "auto", goes_around=options.private) as private_dir,
        Connection(private_dir / "control.sock") as connection,
    ):
        if reason:
            print(
                f"fairgv-run: {reason}. A private one serves this program alone, by no weights (--private: without this line)",
                file=sys.stderr,
            )
        yield connection


def _system_connection(options: argparse.Namespace) -> tuple[Connection | None, str]:
    """To the daemon that serves whoever comes, or none, and why."""
    if options.private:
        return None, ""
    socket_path = (options.state_dir or dir_of_commands(default_state_dir())) / SOCKET
    try:
        connection = Connection(socket_path, partial(say_silent, "fairgv-run"))
    except DaemonNotRunningError as error:
        if options.state_dir is not None:
            raise
        return None, str(error)
    if options.device not in (None, "auto"):
        kind = connection.ask("status")["device"]["kind"]
        if kind != options.device:
            connection.close()
            raise FairGVError(
                f"--device {options.device}: the daemon on {socket_path} serves the device {kind}; leave the option out, or add --private"
            )
    return connection, ""


@contextlib.contextmanager
def _watched(options: argparse.Namespace) -> Iterator[dict[str, str]]:
    """Environment variables under which the program is traced and counted; at the end what was asked for is written and shown."""
    variables: dict[str, str] = {}
    try:
        with contextlib.ExitStack() as at_end:
            if options.trace is not None:
                variables.update(at_end.enter_context(_traced(options.trace)))
            if options.count or options.json is not None:
                variables.update(at_end.enter_context(_counted(options)))
            yield variables
    except OSError as error:
        raise FairGVError(str(error)) from error


@contextlib.contextmanager
def _traced(path: Path) -> Iterator[dict[str, str]]:
    _write(path, "")
    import tempfile  # noqa: PLC0415 - rare

    from backend_host import timeline  # noqa: PLC0415

    if not timeline.is_wanted(path):
        yield {"FAIRGV_TRACE": str(path.resolve())}
        return
    with tempfile.TemporaryDirectory(prefix="fairgv-", ignore_cleanup_errors=True) as directory:
        lines = Path(directory, "lines")
        lines.touch()
        try:
            yield {"FAIRGV_TRACE": str(lines), "FAIRGV_TIMELINE": "1"}
        finally:
            with lines.open(errors="replace") as file:
                timeline.write(file, path)


@contextlib.contextmanager
def _counted(options: argparse.Namespace) -> Iterator[dict[str, str]]:
    import tempfile  # noqa: PLC0415 - rare, as is what prints tables

    from backend_host.trace import counts_json, print_counts, read_counts  # noqa: PLC0415

    if options.json is not None:
        _write(options.json, "")
    with tempfile.TemporaryDirectory(prefix="fairgv-", ignore_cleanup_errors=True) as directory:
        yield {"FAIRGV_COUNT": f"{directory}/counts"}
        counts = read_counts(Path(directory).iterdir())
        if options.json is not None:
            _write(options.json, json.dumps(counts_json(counts), indent=1) + "\n")
        if options.count:
            print_counts(counts, sys.stderr)


def _write(path: Path, text: str) -> None:
    """Nothing at first, so that what cannot be written is told before the program runs."""
    try:
        path.write_text(text)
    except OSError as error:
        raise FairGVError(f"cannot write {path}: {error.strerror}") from error


def _run(command: Sequence[str], variables: Mapping[str, str], guest_library: Path) -> int:
    if not guest_library.exists():
        raise FairGVError(f"{guest_library} is not built; run make setup")
    search = [str(guest_library.parent), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    environment = {**os.environ, **variables, "LD_LIBRARY_PATH": ":".join(search)}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, as some callers leave it, it would tell nothing
    taken = {*_FORWARDED, signal.SIGCHLD}
    end_with_us = ending_with_us()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, taken)
    try:
        return _wait(_spawn(command, environment, end_with_us), taken)
    finally:
        while signal.sigtimedwait(taken, 0) is not None:
            pass  # for a program that has ended
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _spawn(
    command: Sequence[str], environment: Mapping[str, str], prepare: Callable[[], None]
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(command, env=environment, close_fds=False, preexec_fn=prepare)  # noqa: PLW1509 - one thread
    except OSError as error:
        raise ProgramError(command[0], error) from error


def _wait(program: subprocess.Popen[bytes], taken: set[signal.Signals]) -> int:
    while True:
        code = program.poll()
        if code is not None:
            return 128 - code if code < 0 else code
        info = signal.sigwaitinfo(taken)
        if info.si_signo != signal.SIGCHLD and info.si_code != _SI_KERNEL:
            with contextlib.suppress(PermissionError):  # a program that runs as somebody else
                os.kill(program.pid, info.si_signo)


if __name__ == "__main__":
    sys.exit(main())
