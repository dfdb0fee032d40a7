"""CuPy's streams and kinds of memory: pools in streams, managed and pinned memory, events, graphs."""

import cupy
import numpy as np
from report import part, say


@part
def stream() -> None:
    with cupy.cuda.Stream(non_blocking=True) as stream:
        doubled = cupy.arange(1000) * 2
        stream.synchronize()
    say("stream", doubled)


@part
def pool_in_streams() -> None:
    pool = cupy.cuda.MemoryAsyncPool()
    with cupy.cuda.using_allocator(pool.malloc):
        say("pool in streams", cupy.ones(1 << 20) * 3)


@part
def managed_memory() -> None:
    pool = cupy.cuda.MemoryPool(cupy.cuda.malloc_managed)
    with cupy.cuda.using_allocator(pool.malloc):
        say("managed", cupy.ones(1 << 18) * 5)


@part
def pinned_memory() -> None:
    pinned = cupy.cuda.alloc_pinned_memory(8000)
    values = np.frombuffer(pinned, dtype=np.float64, count=1000)
    values[:] = 2
    there = cupy.empty(1000)
    there.set(values, stream=cupy.cuda.Stream.null)
    say("pinned", there)


@part
def events() -> None:
    begin = cupy.cuda.Event()
    end = cupy.cuda.Event()
    matrix = cupy.ones((256, 256))
    begin.record()
    product = matrix @ matrix
    end.record()
    end.synchronize()
    say("time passed", cupy.cuda.get_elapsed_time(begin, end) > 0)
    say("product", product)


@part
def graph() -> None:
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        values = cupy.ones(1000)
        stream.begin_capture()
        values += 1
        graph = stream.end_capture()
        graph.launch()
        graph.launch()
        stream.synchronize()
    say("graph", values)
