"""`fairgv-host drain` and `undrain`: whether vGPUs come to a Gpu."""

import argparse
from functools import partial

from backend_host import output
from backend_host.service.commands import Connect


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", connect: Connect) -> None:
    """Among the commands of fairgv-host; `connect` reaches the daemon."""
    for name, run, summary, text in (
        (
            "drain",
            _drain,
            "have no vGPU come to a Gpu",
            "Has no vGPU come to a Gpu, for this daemon and those that follow, until fairgv-host undrain (docs/migration.md). Those that are "
            "there stay until they end.",
        ),
        ("undrain", _undrain, "have vGPUs come to a Gpu again", "Has vGPUs come to a Gpu again that was drained."),
    ):
        parser = commands.add_parser(name, help=summary, description=text, epilog=f"Example: fairgv-host {name} 0")
        parser.add_argument("gpu", metavar="GPU", help="its number, or the beginning of its UUID: fairgv-host devices")
        parser.set_defaults(run=partial(run, connect))


def _drain(connect: Connect, options: argparse.Namespace) -> int:
    with connect(options) as connection:
        answer = connection.ask("drain", gpu=options.gpu)
    output.say(answer["text"])
    if names := ", ".join(answer["vgpus"]):
        output.say(f"{names}: there until they end")
    return 0


def _undrain(connect: Connect, options: argparse.Namespace) -> int:
    with connect(options) as connection:
        output.say(connection.ask("undrain", gpu=options.gpu)["text"])
    return 0
