"""A kernel of Pallas, which JAX compiles by Triton or Mosaic."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from report import part, say


def add(left, right, result) -> None:
    """One block."""
    result[...] = left[...] + right[...]


@part
def pallas() -> None:
    values = jnp.arange(1024, dtype=jnp.float32)
    block = pl.BlockSpec((256,), lambda i: (i,))
    shape = jax.ShapeDtypeStruct(values.shape, values.dtype)
    add_blocks = pl.pallas_call(add, out_shape=shape, grid=(4,), in_specs=[block, block], out_specs=block)
    say("pallas", add_blocks(values, values))
