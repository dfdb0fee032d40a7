"""Pictures of the page, at two sizes, light and dark, for docs/web.md: `python -m tests.backend_host.web.pictures [--gpus N] [--vgpus N]`.

The hour in them is made up: weights of 1, 2 and 3, a fourth that comes, a weight that changes, one that pauses. They are drawn by the browser
that tests use.
"""

import argparse
import random
from collections.abc import Callable
from pathlib import Path

from backend_host.config import PACKAGE_ROOT
from tests.backend_host.web.browser import NARROW, WIDE, opened, started
from tests.backend_host.web.played import Played, Tenant
from tests.backend_host.web.serving import served

FOLDER = PACKAGE_ROOT / "docs/pictures"
SIZES = {"wide": WIDE, "narrow": NARROW}
HOUR_S = 3600


def divided(weights: Callable[[int], dict[str, int]], name: str) -> Callable[[int], float]:
    """Its part by weight of those that are active in a second."""
    return lambda second: weights(second).get(name, 0) / (sum(weights(second).values()) or 1)


def story() -> list[Tenant]:
    def weights(second: int) -> dict[str, int]:
        found = {"training": 3, "render": 2, "notebook-anna": 1}
        if second > HOUR_S - 600:
            found["inference"] = 2
        if second > HOUR_S - 300:
            found["notebook-anna"] = 3
        if HOUR_S - 800 < second < HOUR_S - 700:
            del found["render"]
        return found

    gigabytes = {"training": 38, "render": 12, "notebook-anna": 3, "inference": 17}
    tenants = [_noisy(name, divided(weights, name), size << 30) for name, size in gigabytes.items()]
    for tenant in tenants:
        tenant.weight = weights(HOUR_S)[tenant.name]
    tenants[0].quota_bytes = 40 << 30
    tenants[-1].comes = HOUR_S - 600
    return tenants


def _noisy(name: str, due: Callable[[int], float], memory_bytes: int) -> Tenant:
    """Gets its due, more or less."""
    chance = random.Random(name)

    def share(second: int) -> float:
        return max(0.0, due(second) * 0.98 + chance.uniform(-0.01, 0.01)) if due(second) else 0.0

    def wait_ms(second: int) -> float:
        return (1 - due(second)) * 60 + chance.uniform(0, 12) if due(second) else 0.0

    return Tenant(name, share, lambda second: due(second) or None, memory_bytes=memory_bytes, wait_ms=wait_ms)


def crowd(nr: int, nr_gpus: int) -> list[Tenant]:
    """So many, one like the other."""
    each = nr_gpus / nr
    return [
        Tenant(f"vm-{number:03}", lambda second: each, lambda second: each, gpu=number % nr_gpus)
        for number in range(nr)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--vgpus", type=int, default=0, help="as many, in place of the story")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args()
    played = Played(crowd(options.vgpus, options.gpus) if options.vgpus else story(), options.gpus)
    teller = played.teller()
    played.play(teller, HOUR_S + 1)
    with served(teller) as host, started() as browser:
        for name, size in SIZES.items():
            for scheme in ("light", "dark"):
                with opened(browser, host.url, size, scheme) as visit:
                    played.pass_second()
                    host.tell("second", teller.second())
                    visit.page.wait_for_selector("#state[data-state=live]")
                    visit.page.wait_for_selector("#rows tr")
                    visit.page.screenshot(path=options.folder / f"web-{name}-{scheme}.png", full_page=True)


if __name__ == "__main__":
    main()
