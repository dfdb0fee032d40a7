"""`fairgv-host config`: whether a file is right, and the configuration that `start` would have, with where each value comes from.

Wrong when: a daemon runs that was started with other options, or before the file was changed. It is not asked.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from backend_host import output
from backend_host.arguments import path_argument, take_state_dir
from backend_host.config import SYSTEM_FILE, Config, load_config, problems, read_file
from backend_host.config_keys import TABLES, toml, written
from backend_host.errors import FairGVError

_WHERE_FROM = 24
"""Columns of a value before what is said of it."""


def add_command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    add_settings: Callable[[argparse.ArgumentParser], None],
    run_show: Callable[[argparse.Namespace], int],
) -> None:
    """`config` among the commands of fairgv-host. `add_settings` adds the options of `start` that are settings."""
    parser = commands.add_parser("config", help="check a configuration file, or show what is in force")
    below = parser.add_subparsers(required=True, metavar="COMMAND")
    checked = below.add_parser(
        "check",
        help="whether a file is right",
        description="Names each key of a file that is unknown or wrong, with what is allowed; of a right file, what is wrong with those of "
        "vgpus.d beside it or with web_token_file. Exit status 1 when there is something.",
    )
    checked.add_argument(
        "file", nargs="?", type=path_argument, default=SYSTEM_FILE, metavar="FILE", help="(default %(default)s)"
    )
    checked.set_defaults(run=_check)
    shown = below.add_parser(
        "show",
        help="what `start` would have with the same options",
        description="Prints the configuration that `start` would have with the same options, as TOML; a comment says where a value "
        "comes from: default, file or option. The output is a configuration file itself.",
    )
    add_settings(shown)
    shown.add_argument("--json", action="store_true", help="for programs; sizes in bytes")
    shown.set_defaults(run=run_show)
    take_state_dir(below)


def show(config: Config, file: Path | None, given: Mapping[str, object], *, is_json: bool) -> int:
    """Prints it. `given` are the options, by field; None is one that was not given."""
    sources = _sources(config, file, given)
    if is_json:
        values = written(config, is_for_people=False)
        told = {key: {"value": value, "from": sources[key]} for key, value in values.items()}
        output.say_json({"file": str(file) if file else None, "keys": told})
        return 0
    output.say(f"# file: {file or 'none'}")
    table = ""
    for key, value in written(config).items():
        above, _, name = key.rpartition(".")
        if above != table:
            table = above
            output.say(f"\n[{table}]")
        output.say(f"{f'{name} = {toml(value)}':<{_WHERE_FROM}}  # {sources[key]}")
    return 0


def _check(options: argparse.Namespace) -> int:
    wrong = [f"{options.file}: {sentence}" for sentence in problems(options.file)] or _problems_beside(options.file)
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    if not wrong:
        nr = len(read_file(options.file).keys)
        output.say(f"{options.file}: {'its one key is' if nr == 1 else f'all {nr} keys are'} right")
    return int(bool(wrong))


def _problems_beside(file: Path) -> list[str]:
    """What is wrong with the files that go with a right one: those of vgpus.d, and that of the token."""
    from backend_host.service.kept import read_kept  # noqa: PLC0415 - with all that serves vGPUs
    from backend_host.web.access import read_token  # noqa: PLC0415 - as above

    config = load_config(file)
    try:
        read_kept(config)
        if config.web and config.web_token_file:
            read_token(Path(config.web_token_file))
    except FairGVError as error:
        return [str(error)]
    return []


def _sources(config: Config, file: Path | None, given: Mapping[str, object]) -> dict[str, str]:
    in_file = read_file(file).keys if file else frozenset()
    fields = {"slice_ms": "slice_ns"}
    options = {key for key in written(config) if given.get(fields.get(key, key)) is not None}
    assert not options & TABLES.keys()
    return {key: "option" if key in options else "file" if key in in_file else "default" for key in written(config)}
