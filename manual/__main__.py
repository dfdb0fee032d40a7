"""`python -m manual [FOLDER]`: writes manual pages into FOLDER/man, completions into FOLDER/completions, and FOLDER/config.toml; FOLDER is
build."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from manual.commands import COMMANDS
from manual.completions import SHELLS, completion
from manual.config_file import config_file
from manual.pages import of_command, of_configuration


def files() -> Iterator[tuple[str, str]]:
    """Path below the folder, and text, of each."""
    for command in COMMANDS:
        yield f"man/man1/{command.name}.1", of_command(command)
        for shell, name in SHELLS.items():
            yield f"completions/{shell}/{name.format(command.name)}", completion(command, shell)
    yield "man/man5/fairgv.toml.5", of_configuration()
    yield "config.toml", config_file()


def main(folder: Path) -> int:
    """Writes them."""
    os.environ["COLUMNS"] = "80"  # argparse wraps by the terminal's width
    for name, content in files():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("build")))
