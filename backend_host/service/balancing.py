"""`fairgv-host balance`: how a daemon balances its Gpus now, and from now on."""

import argparse
from functools import partial

from backend_host import output
from backend_host.service.commands import Connect
from backend_host.service.events import UNCHANGED
from scheduler.balance import MODES

_MEANINGS = {
    "off": "vGPUs stay where they are",
    "balance": "vGPUs leave Gpus of which more is wanted than there is",
    "compact": "vGPUs leave Gpus of which more is wanted than there is, and Gpus that are used little",
}


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", connect: Connect) -> None:
    """Among the commands of fairgv-host; `connect` reaches the daemon."""
    balance = commands.add_parser(
        "balance",
        help="have vGPUs move between Gpus by what they want, or stay",
        description="Says how the Gpus are balanced, or balances them so from now on, until the daemon's next start, or a reload that "
        "changes the key `balance` of the configuration, which lasts. Each move stands in the log with its numbers (docs/devices.md).",
        epilog="Example: fairgv-host balance compact",
    )
    balance.add_argument(
        "mode", nargs="?", choices=MODES, help="; ".join(f"{mode}: {_MEANINGS[mode]}" for mode in MODES)
    )
    balance.add_argument("--json", action="store_true", help="the mode, for programs (docs/json.md)")
    balance.set_defaults(run=partial(_balance, connect))


def _balance(connect: Connect, options: argparse.Namespace) -> int:
    with connect(options) as connection:
        asked = connection.ask("balance", mode=options.mode) if options.mode else connection.ask("balancing")
        mode = asked["mode"]
    if options.json:
        output.say_json({"mode": mode})
    else:
        already = " already" if asked.get(UNCHANGED) else ""
        output.say(f"{mode}{already}: {_MEANINGS[mode]}")
    return 0
