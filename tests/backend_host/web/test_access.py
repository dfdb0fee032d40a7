"""Who may see the page: where it is served without a token, which tokens there are, and what a request must show."""

from pathlib import Path

import pytest

from backend_host.address import Address
from backend_host.config import load_config
from backend_host.errors import ConfigError, FairGVError
from backend_host.web.access import COOKIE, Access, read_token
from backend_host.web.address import read_web_address

TOKEN = "0123456789abcdef.-_~"
LOOPBACK = Address(host="127.0.0.1", port=9401)
UNIX = Address(path=Path("/run/fairgv/web.sock"))
ANYWHERE = Address(host="0.0.0.0", port=9401)


@pytest.mark.parametrize("text", ["127.0.0.1:9401", "[::1]:9401", "localhost:9401", "/run/fairgv/web.sock"])
def test_this_host_needs_no_token(text: str) -> None:
    assert read_web_address(text, has_token=False).is_local


@pytest.mark.parametrize("text", ["0.0.0.0:9401", "[::]:9401", "192.0.2.1:9401", "host.example:9401", ":9401"])
def test_elsewhere_it_is_refused_without_a_token(text: str) -> None:
    with pytest.raises(ConfigError, match=r"web: others would reach .* Set web_token_file .* or serve 127.0.0.1:9401"):
        read_web_address(text, has_token=False)
    assert not read_web_address(text, has_token=True).is_local


@pytest.mark.parametrize("text", ["9401", "127.0.0.1", "127.0.0.1:0", "web.sock", "on"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"web must be an address with a port, such as 127.0.0.1:9401"):
        read_web_address(text, has_token=True)


def test_the_configuration_refuses_it_before_anything_starts(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('web = "0.0.0.0:9401"\n')
    with pytest.raises(ConfigError, match="web: others would reach"):
        load_config(path)
    path.write_text('web = "0.0.0.0:9401"\nweb_token_file = "/etc/fairgv/token"\n')
    assert load_config(path).web_token_file == "/etc/fairgv/token"


def written(tmp_path: Path, text: str, mode: int = 0o600) -> Path:
    path = tmp_path / "token"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_token_is_read_from_a_file_that_not_everybody_may_read(tmp_path: Path) -> None:
    assert read_token(written(tmp_path, f"{TOKEN}\n", 0o640)) == TOKEN
    with pytest.raises(FairGVError, match=r"everybody may read .*token, or write to it; do: chmod o= "):
        read_token(written(tmp_path, TOKEN, 0o604))
    with pytest.raises(FairGVError, match=r"web_token_file: cannot read .*none: No such file"):
        read_token(tmp_path / "none")


@pytest.mark.parametrize("text", ["", "short", "a" * 15, "a" * 257, "a space in it, and long", "ü" * 20])
def test_what_is_no_token_is_refused_and_not_told(tmp_path: Path, text: str) -> None:
    with pytest.raises(FairGVError, match=r"16 to 256 letters.* openssl rand -hex 24") as refused:
        read_token(written(tmp_path, text))
    assert not text or text not in str(refused.value)


def test_a_file_of_other_bytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(b"\xff" * 20)
    path.chmod(0o600)
    with pytest.raises(FairGVError, match="web_token_file: cannot read"):
        read_token(path)


@pytest.mark.parametrize("address", [LOOPBACK, UNIX, ANYWHERE])
def test_with_a_token_nobody_comes_in_without_it(address: Address) -> None:
    access = Access(address, TOKEN)
    value = access.cookie().partition(";")[0].partition("=")[2]
    for headers in (
        {},
        {"host": "127.0.0.1"},
        {"authorization": "Bearer"},
        {"authorization": f"Bearer {TOKEN}x"},
        {"authorization": f"Bearer {TOKEN[:-1]}"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": "Bearer ü"},
        {"cookie": f"{COOKIE}={TOKEN}"},
        {"cookie": f"{COOKIE}="},
        {"cookie": f"other={value}"},
        {"cookie": f"{COOKIE}=ü"},
        {"cookie": "\x00"},
    ):
        assert not access.is_allowed(headers), headers
    assert access.is_allowed({"authorization": f"Bearer {TOKEN}"})
    assert access.is_allowed({"cookie": f"other=1; {COOKIE}={value}"})
    assert not Access(address, f"{TOKEN}2").is_allowed({"cookie": f"{COOKIE}={value}"}), "it goes with its token"


def test_the_cookie_does_not_have_the_token_and_scripts_do_not_see_it() -> None:
    cookie = Access(LOOPBACK, TOKEN).cookie()
    assert TOKEN not in cookie
    assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict")


@pytest.mark.parametrize("host", ["127.0.0.1:9401", "127.0.0.1", "localhost:9401", "[::1]:9401"])
def test_on_loopback_our_own_names_come_in(host: str) -> None:
    assert Access(LOOPBACK).is_allowed({"host": host})


@pytest.mark.parametrize(
    "host", ["", "evil.example", "127.0.0.1.evil.example:9401", "192.0.2.1:9401", "[::1", "a@evil.example"]
)
def test_a_name_that_was_made_to_lead_here_does_not(host: str) -> None:
    assert not Access(LOOPBACK).is_allowed({"host": host})
    assert Access(UNIX).is_allowed({"host": host}), "no browser reaches a UNIX socket by a name"


def test_where_there_is_no_token_none_is_right() -> None:
    assert not Access(LOOPBACK).is_right("")
    assert not Access(LOOPBACK).wants_token
