"""python -m softgpu.compiler, or with -S, which leaves the search for packages to what stands here: that takes a third of the time."""

import gc
import os
import sys

gc.disable()  # the process ends before there is garbage worth the search
if sys.flags.no_site:
    environment = os.path.dirname(os.path.dirname(sys.executable))  # noqa: PTH120 - pathlib costs more than the rest of this file
    if os.path.exists(os.path.join(environment, "pyvenv.cfg")):  # noqa: PTH110, PTH118
        # Not by the module site: a distribution's own names other folders, and does not know that this is an environment.
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        sys.path.append(os.path.join(environment, "lib", version, "site-packages"))  # noqa: PTH118
    else:
        import site

        site.main()

from softgpu.compiler import main  # noqa: E402 - found on the path made above

status = main()
sys.stdout.flush()
sys.stderr.flush()
os._exit(status)  # without taking LLVM apart piece by piece
