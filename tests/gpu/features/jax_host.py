"""What JAX does with the host: callbacks, prints, arrays there and back, memory that a call gives away."""

import jax
import jax.numpy as jnp
import numpy as np
from report import part, say

jax.config.update("jax_enable_x64", True)


@part
def callback() -> None:
    @jax.jit
    def doubled(x: jax.Array) -> jax.Array:
        return jax.pure_callback(lambda there: np.asarray(there) * 2, jax.ShapeDtypeStruct(x.shape, x.dtype), x) + 1

    say("callback", doubled(jnp.arange(10.0)))


@part
def debug_print() -> None:
    jax.jit(lambda x: jax.debug.print("printed {}", x.sum()))(jnp.arange(4.0))
    jax.effects_barrier()


@part
def donation() -> None:
    add_one = jax.jit(lambda x: x + 1, donate_argnums=0)
    values = jnp.zeros(1 << 20)
    for _ in range(10):
        values = add_one(values)
    say("donated", values)


@part
def there_and_back() -> None:
    say("put", jax.device_put(np.arange(1000.0)) * 2)
    say("permutation", jax.random.permutation(jax.random.key(0), 1000))


@part
def memory() -> None:
    say("memory is told", bool(jax.devices()[0].memory_stats()))
