"""Who may see the page: everybody who reaches it on this host, and elsewhere who knows the token.

The token comes in a header, or once as `?token=` of an address, which the browser trades for a cookie: so it does not stay where addresses are
kept. The cookie is made of the token and ends when that is changed. Neither is logged.

Without a token the name in the request must be of this host. Else a page of somebody's, whose name was made to lead to 127.0.0.1, could read
ours in the operator's browser.

Wrong when: somebody listens on the way. Over a network the page wants a proxy with TLS in front of it (docs/web.md).
"""

import hmac
import os
import re
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import urlsplit

from backend_host.address import Address, is_loopback
from backend_host.errors import FairGVError
from backend_host.web.address import MAKE_ONE

COOKIE = "fairgv_web"
_TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,256}")
"""What an address may have as it is; 16 of these are 95 bits where they were drawn by lot."""


def read_token(path: Path) -> str:
    """The token in the file. FairGVError for one that is none, or that others may read."""
    try:
        with path.open() as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(1024).strip()
    except (OSError, ValueError) as error:
        raise FairGVError(f"web_token_file: cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    if mode & 0o007:
        raise FairGVError(f"web_token_file: everybody may read {path}, or write to it; do: chmod o= {path}")
    if not _TOKEN.fullmatch(text):
        raise FairGVError(
            f"web_token_file: {path} must have a token of 16 to 256 letters, digits and . _ ~ - and nothing else; {MAKE_ONE}"
        )
    return text


class Access:
    """Judges requests, by their headers and what they ask with."""

    def __init__(self, address: Address, token: str = "") -> None:
        self._is_unix = address.path is not None
        self._token = token.encode()
        self._cookie = hmac.digest(self._token, b"fairgv web cookie", "sha256").hex() if token else ""

    @property
    def wants_token(self) -> bool:
        """Whether there is one."""
        return bool(self._token)

    def is_right(self, token: str) -> bool:
        """Whether this is the token; takes as long whatever it is."""
        return bool(self._token) and hmac.compare_digest(token.encode(), self._token)

    def is_allowed(self, headers: Mapping[str, str]) -> bool:
        """Whether who sends these headers may see the page. Names are in lower case."""
        if not self._token:
            return self._is_unix or _is_for_this_host(headers.get("host", ""))
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self.is_right(token.strip()):
            return True
        return hmac.compare_digest(_cookie_of(headers.get("cookie", "")).encode(), self._cookie.encode())

    def cookie(self) -> str:
        """The header that gives a browser the cookie."""
        return f"{COOKIE}={self._cookie}; Path=/; HttpOnly; SameSite=Strict"


def _is_for_this_host(host: str) -> bool:
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False


def _cookie_of(header: str) -> str:
    try:
        cookies = SimpleCookie(header)
    except CookieError:
        return ""
    return cookies[COOKIE].value if COOKIE in cookies else ""
