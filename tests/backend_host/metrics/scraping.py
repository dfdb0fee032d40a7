"""Asks for metrics as Prometheus does, and reads them with prometheus-client's parser."""

import http.client
import socket
from collections.abc import Mapping
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

Series = tuple[str, frozenset[tuple[str, str]]]


class _OverUnix(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("metrics")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


def ask(where: Path | int, path: str = "/metrics") -> tuple[int, str, str]:
    """Status, kind and text of the answer, of a UNIX socket or a port of loopback."""
    connection = _OverUnix(where) if isinstance(where, Path) else http.client.HTTPConnection("127.0.0.1", where)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()
    finally:
        connection.close()


def read(text: str) -> dict[Series, float]:
    """The value of each series."""
    families = text_string_to_metric_families(text)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value for each in families for sample in each.samples
    }


def of(series: Mapping[Series, float], name: str, **labels: str) -> list[float]:
    """Of each series of this name that has these labels."""
    return [value for (found, its), value in series.items() if found == name and frozenset(labels.items()) <= its]
