"""Where metrics may be served, and what is said of anywhere else."""

from pathlib import Path

import pytest

from backend_host.address import Address
from backend_host.errors import ConfigError
from backend_host.metrics.address import read_metrics_address


@pytest.mark.parametrize(
    ("text", "address", "shown"),
    [
        ("127.0.0.1:9400", Address(host="127.0.0.1", port=9400), "127.0.0.1:9400"),
        ("127.8.0.9:1", Address(host="127.8.0.9", port=1), "127.8.0.9:1"),
        ("[::1]:65535", Address(host="::1", port=65535), "[::1]:65535"),
        ("localhost:9400", Address(host="127.0.0.1", port=9400), "127.0.0.1:9400"),
        ("/run/fairgv/metrics.sock", Address(path=Path("/run/fairgv/metrics.sock")), "/run/fairgv/metrics.sock"),
    ],
)
def test_loopback_and_unix_sockets_are_served(text: str, address: Address, shown: str) -> None:
    assert read_metrics_address(text) == address
    assert str(address) == shown


@pytest.mark.parametrize(
    "text", ["0.0.0.0:9400", "[::]:9400", ":9400", "192.168.0.1:9400", "[fe80::1]:9400", "host.example:9400", "1:9400"]
)
def test_what_others_reach_is_refused_with_the_remedy(text: str) -> None:
    with pytest.raises(ConfigError, match=r"others would reach .* Serve 127.0.0.1:9400 .* or set metrics_file"):
        read_metrics_address(text)


@pytest.mark.parametrize(
    "text", ["9400", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "::1:9400", "metrics.sock", "on"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="metrics must be an address with a port"):
        read_metrics_address(text)


def test_a_path_that_is_too_long_for_a_socket() -> None:
    with pytest.raises(ConfigError, match="at most 107 bytes"):
        read_metrics_address("/" + "a" * 107)
