"""The page of a daemon that runs: a guest on softgpu that comes and goes is in it, and so it is in the report."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backend_host import opening
from backend_host.address import Address
from backend_host.cli import host_command
from backend_host.errors import FairGVError
from backend_host.ipc import Connection
from backend_host.web.access import Access
from backend_host.web.serving import Looker, Page
from backend_host.web.telling import Teller
from tests.backend_host.web.played import Played, Tenant
from tests.backend_host.web.reading import series
from tests.backend_host.web.serving import ask, served
from tests.backend_host.web.test_server import next_event
from tests.end_to_end.host import Host, start_host, stop_host, wait_until

REGION_BYTES = 16 << 20


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("web") / "web.sock"


@pytest.fixture(scope="module")
def host(path: Path) -> Iterator[Host]:
    running = start_host(path.parent / "host", web=str(path))
    yield running
    stop_host(running)
    assert not path.exists()


def document(path: Path) -> dict[str, Any]:
    status, _, body = ask(path, "/document")
    assert status == 200
    found: dict[str, Any] = json.loads(body)
    return found


def test_a_vgpu_that_comes_and_goes_is_in_the_page_and_in_the_report(host: Host, path: Path, tmp_path: Path) -> None:
    with Connection(host.state_dir / "control.sock") as connection:
        os.close(connection.ask("open", name="comes", region_bytes=REGION_BYTES, weight=3)["fd"])
        child = host.guest("spin", "300", options=("--vgpu", "comes"))
        assert child.returncode == 0, child.stderr

        def used() -> float:
            told = document(path)["history"]
            keys = [vgpu["key"] for vgpu in told["vgpus"]]
            return sum(value or 0 for value in series(told, "0/comes", "share")) if "0/comes" in keys else 0

        wait_until(lambda: used() > 0, "what it used is in the history")
        vgpus = document(path)["second"]["vgpus"]
        assert [(vgpu["name"], vgpu["weight"], vgpu["kind"]) for vgpu in vgpus] == [("comes", 3, "session")]
    wait_until(lambda: document(path)["second"]["vgpus"] == [], "it is gone")
    answer = host_command(host.state_dir, "report", str(tmp_path / "report.html"))
    assert (answer.returncode, answer.stdout) == (0, f"written: {tmp_path / 'report.html'}\n"), answer.stderr
    found = re.search(r'id="document">(.*)</script>', (tmp_path / "report.html").read_text())
    assert found is not None
    assert sum(value or 0 for value in series(json.loads(found[1])["history"], "0/comes", "share")) > 0


def test_a_daemon_without_the_page_has_no_report_and_says_how_it_would(tmp_path: Path) -> None:
    host = start_host(tmp_path / "host", nr_warm_workers=0)
    try:
        answer = host_command(host.state_dir, "report", str(tmp_path / "report.html"))
        assert answer.returncode == 1
        assert "keeps no last hour" in answer.stderr
        assert "start --web" in answer.stderr
        assert not (tmp_path / "report.html").exists()
    finally:
        stop_host(host)


def test_a_token_that_is_none_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(FairGVError, match=r"web_token_file: cannot read .*none"):
        start_host(tmp_path / "host", web="0.0.0.0:1", web_token_file=str(tmp_path / "none"), nr_warm_workers=0)


def test_seconds_are_told_while_somebody_reads_and_points_in_any_case() -> None:
    played = Played([Tenant("one")])
    teller = played.teller()
    with served(teller) as running:
        looker = Looker(teller, running.server)
        looker.look(is_point=False)
        assert teller.document()["second"] == {}, "nobody reads"
        looker.look(is_point=True)
        assert teller.document()["history"]["number"] == 1
        stream = running.events()
        wait_until(lambda: running.server.has_readers, "somebody reads")
        looker.look(is_point=True)
        assert next_event(stream)[0] == "second"
        assert next_event(stream)[0] == "point"
        looker.look(is_point=False)
        assert next_event(stream)[0] == "second"
        stream.close()


def test_a_look_that_fails_is_told_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    played, looks = Played([]), []

    def statistics() -> Any:
        looks.append(1)
        raise ZeroDivisionError

    with served() as running:
        looker = Looker(Teller(statistics, played.glance, {}), running.server)
        looker.start()
        wait_until(lambda: len(looks) == 1, "it looks at once")
        looker.stop()
    assert caplog.text.count("the page could not be told; trying again") == 1


def test_the_page_comes_once_its_address_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks are taken meanwhile, so that it has a past."""
    monkeypatch.setattr(opening, "AGAIN_S", 0.001)
    path, teller, notes = tmp_path / "web.sock", Played([]).teller(), list[str]()
    path.write_text("somebody's")
    address = Address(path=path)
    page = Page(address, Access(address, ""), teller, notes.append)
    page.start()
    Looker(teller, page).look(is_point=True)
    assert not page.has_readers
    assert [note.partition(" on ")[0] for note in notes] == ["cannot serve the web page"]
    path.unlink()
    wait_until(lambda: page.served is not None, "it is served")
    assert document(path)["history"]["number"] == 1
    page.stop()
    assert not path.exists()
