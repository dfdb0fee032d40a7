"""The model of grants: all that workers and the daemon can do together with the control page, one access after another.

    .venv/bin/python -m tests.model                              what continuous integration checks
    .venv/bin/python -m tests.model --large                      and what takes longer
    .venv/bin/python -m tests.model --workers 3 --deaths 2 --may nudges "daemon dies"
    .venv/bin/python -m tests.model --fault "fgw_grant_leave does not hand on"

Checked in each state that can be reached, whatever order the steps come in and whoever dies between any two of them:

* Two inside: no two living workers of different vGPUs have entered and not left, unless the daemon evicted one of them.
* No bit of a living worker's is set or cleared by anybody else.
* Each new holder has a new sequence number. Where nobody dies or gives up, it is a vGPU that waits at that moment.
* Nobody waits for ever: from each state, whoever waits can be served by steps that are sure to come. Sure are the next steps of living workers
  and of the daemon, that who is in leaves at some time, that a death is heard of; where time counts, that a sleep ends and an unused grant
  grows old. Not sure are that somebody else wants the GPU, gives up, ends or evicts. If each step that stays possible comes at some time, who
  can always still be served is served.

What it cannot tell: how long anything takes, and whose turn it is by the policy, since any that waits may be chosen here; what a hostile worker
writes; a number or a bell that wraps; a slot that goes to another vGPU between two loads of one look. Accesses are one order for all, as
sequentially consistent ones are: relaxed loads (`fgw_grant_has`) are left to the sanitizers.
"""

import argparse
import sys
import time

from tests.model.engine import Model, Setting
from tests.model.mutants import MUTANTS
from tests.model.report import described
from tests.model.settings import LARGE, SMALL

MAY = ("nudges", "cancels", "ends", "evictions", "daemon dies", "daemon returns", "workers return")


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.model", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--large", action="store_true", help="the larger settings, too: minutes, and gigabytes")
    parser.add_argument("--workers", type=int, choices=(2, 3), help="a setting of your own, with so many workers")
    parser.add_argument("--vgpus", type=int, choices=(1, 2, 3), help="of so many vGPUs; one for each worker by default")
    parser.add_argument("--deaths", type=int, choices=(0, 1, 2, 3), default=0, help="so many processes may die")
    parser.add_argument("--may", nargs="*", choices=MAY, default=["nudges"], metavar="WHAT", help=", ".join(MAY))
    parser.add_argument("--bells", action="store_true", help="only bells wake: no hand-over may need time")
    parser.add_argument(
        "--fault", choices=[mutant.name for mutant in MUTANTS], metavar="NAME", help="put this fault in"
    )
    parser.add_argument("--max-states", type=int, default=200_000_000, help="stop there; 48 bytes each (%(default)s)")
    return parser.parse_args()


def _settings(arguments: argparse.Namespace) -> dict[str, Setting]:
    if arguments.fault:
        return {mutant.name: mutant.mutated for mutant in MUTANTS if mutant.name == arguments.fault}
    if arguments.workers:
        last = (arguments.vgpus or arguments.workers) - 1
        vgpu_of = tuple(min(worker, last) for worker in range(arguments.workers))
        own = Setting(
            vgpu_of=vgpu_of, nr_deaths=arguments.deaths, may=tuple(arguments.may), is_timed=not arguments.bells
        )
        return {f"vGPUs {vgpu_of}, {arguments.deaths} deaths, {', '.join(arguments.may)}": own}
    return {**SMALL, **(LARGE if arguments.large else {})}


def main() -> int:
    """Prints a line for each setting, and the way to a fault; 1 when there is one."""
    arguments = _parsed()
    has_fault = False
    for name, setting in _settings(arguments).items():
        model, begun_s = Model(setting), time.process_time()
        found = model.search(arguments.max_states)
        has_fault = has_fault or bool(found.fault)
        print(f"{name}: {time.process_time() - begun_s:.1f} s, {described(model, found)}", flush=True)
    return int(has_fault)


if __name__ == "__main__":
    sys.exit(main())
