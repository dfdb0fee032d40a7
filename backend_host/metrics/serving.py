"""What the configuration wants of metrics: an address, a file, both or neither."""

import contextlib
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

from backend_host.config import Config
from backend_host.metrics.address import read_metrics_address
from backend_host.metrics.server import MetricsServer
from backend_host.metrics.text import exposition
from backend_host.metrics.textfile import MetricsFile
from backend_host.opening import Opening
from backend_host.statistics import DaemonStatistics


@contextlib.contextmanager
def serving(
    config: Config, statistics: Callable[[], DaemonStatistics], note: Callable[[str], None] = lambda _: None
) -> Iterator[None]:
    """Serves what `statistics` tells until the end of the block, or as soon as it can: `note` is told why not at once. ConfigError for an
    address that is none."""
    version = _version()

    def text() -> bytes:
        return exposition(statistics(), version)

    with contextlib.ExitStack() as stack:
        if config.metrics:
            address = read_metrics_address(config.metrics)

            def begin() -> MetricsServer:
                server = MetricsServer(address, text)
                server.start()
                return server

            opening = Opening(begin, note)
            stack.callback(opening.stop)
            opening.start()
        if config.metrics_file:
            file = MetricsFile(Path(config.metrics_file), text, note)
            stack.callback(file.stop)
            file.start()
        yield


def _version() -> str:
    """Of the installed package; a source tree that is not installed has none."""
    try:
        return metadata.version("fairgv")
    except metadata.PackageNotFoundError:
        return ""
