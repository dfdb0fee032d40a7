"""Where the page is served: where it asks for a token, anywhere; else on loopback, or on a UNIX socket."""

from backend_host.address import Address, read_address
from backend_host.errors import ConfigError

_EXAMPLE_PORT = 9401
MAKE_ONE = "make one with: openssl rand -hex 24"


def read_web_address(text: str, *, has_token: bool) -> Address:
    """What the configuration says. ConfigError, with the remedy, for what others reach where nobody would ask them for a token."""
    address = read_address("web", text, _EXAMPLE_PORT)
    if not address.is_local and not has_token:
        raise ConfigError(
            f"web: others would reach {text!r}, and nobody would ask who they are. Set web_token_file to a file with a token ({MAKE_ONE}), or "
            f"serve 127.0.0.1:{address.port}"
        )
    return address
