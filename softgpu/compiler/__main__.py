"""python -m softgpu.compiler"""

import gc
import sys

from softgpu.compiler import main

gc.disable()  # the process ends before there is garbage worth the search
sys.exit(main())
