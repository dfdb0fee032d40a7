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
from backend_host.statistics import DaemonStatistics


@contextlib.contextmanager
def serving(config: Config, statistics: Callable[[], DaemonStatistics]) -> Iterator[None]:
    """Serves what `statistics` tells until the end of the block. FairGVError when that cannot be."""
    version = _version()

    def text() -> bytes:
        return exposition(statistics(), version)

    with contextlib.ExitStack() as stack:
        if config.metrics:
            server = MetricsServer(read_metrics_address(config.metrics), text)
            stack.callback(server.stop)
            server.start()
        if config.metrics_file:
            file = MetricsFile(Path(config.metrics_file), text)
            stack.callback(file.stop)
            file.start()
        yield


def _version() -> str:
    """Of the installed package; a source tree that is not installed has none."""
    try:
        return metadata.version("fairgv")
    except metadata.PackageNotFoundError:
        return ""
