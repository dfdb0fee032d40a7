"""python -m softgpu.compiler"""

import sys

from softgpu.compiler import main

sys.exit(main())
