"""Where metrics are served: on loopback, or on a UNIX socket. Nobody asks here who wants to know, so no address is served that others reach."""

from backend_host.address import Address, read_address
from backend_host.errors import ConfigError

_EXAMPLE_PORT = 9400


def read_metrics_address(text: str) -> Address:
    """What the configuration says. ConfigError, with the remedy, for what is not served."""
    address = read_address("metrics", text, _EXAMPLE_PORT)
    if not address.is_local:
        raise ConfigError(
            f"metrics: others would reach {text!r}, and nobody would ask who they are. Serve 127.0.0.1:{address.port} and have a proxy that "
            "asks pass it on, or set metrics_file for a node_exporter that is there already"
        )
    return address
