"""The commands that have a manual page, each with its parser, which is made anew so that who asks may change it."""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from backend_host import cli, run
from benchmarks import cli as bench
from scheduler.simulator import command as simulator


@dataclass(frozen=True)
class Command:
    """`summary` stands behind the name, as whatis(1) shows it."""

    name: str
    summary: str
    parser: Callable[[], argparse.ArgumentParser]
    see_also: tuple[str, ...]


COMMANDS = (
    Command(
        "fairgv-host",
        "give virtual machines their weighted share of this host's GPUs",
        cli.make_parser,
        ("fairgv-run(1)", "fairgv-bench(1)", "fairgv-sim(1)", "fairgv.toml(5)"),
    ),
    Command(
        "fairgv-run",
        "run a CUDA program of this host as a guest of FairGV",
        run.make_parser,
        ("fairgv-host(1)", "fairgv.toml(5)"),
    ),
    Command("fairgv-bench", "measure FairGV on this machine", bench.parser, ("fairgv-host(1)", "fairgv-sim(1)")),
    Command("fairgv-sim", "simulate vGPUs that share GPUs", simulator.make_parser, ("fairgv-host(1)",)),
)


def below(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser, and those of all its commands."""
    yield parser
    for action in parser._actions:  # argparse has no other way to them
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from below(command)


def options(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Options and arguments of one parser; those that are commands, or are not told of, are left out."""
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction) and action.help != argparse.SUPPRESS:
            yield action
