"""A training loop in JAX: jit, grad, vmap. `jax_train.py STEPS`."""

import sys
import time

import jax
import jax.numpy as jnp

STEPS = int(sys.argv[1])


def loss(weights: list[jax.Array], inputs: jax.Array, targets: jax.Array) -> jax.Array:
    hidden = jnp.tanh(jax.vmap(lambda row: row @ weights[0])(inputs))
    return jnp.mean((hidden @ weights[1] - targets) ** 2)


@jax.jit
def step(weights: list[jax.Array], inputs: jax.Array, targets: jax.Array) -> tuple[list[jax.Array], jax.Array]:
    value, slopes = jax.value_and_grad(loss)(weights, inputs, targets)
    return [weight - 0.01 * slope for weight, slope in zip(weights, slopes, strict=True)], value


keys = jax.random.split(jax.random.PRNGKey(0), 4)
weights = [jax.random.normal(keys[0], (256, 512)) * 0.05, jax.random.normal(keys[1], (512, 16)) * 0.05]
inputs, targets = jax.random.normal(keys[2], (1024, 256)), jax.random.normal(keys[3], (1024, 16))
for _ in range(5):
    weights, value = step(weights, inputs, targets)
jax.block_until_ready(value)
begin_s = time.perf_counter()
for _ in range(STEPS):
    weights, value = step(weights, inputs, targets)
jax.block_until_ready(value)
passed_s = time.perf_counter() - begin_s
print(f"jax, training: {float(value):.9g}")
print(f"time jax, training {passed_s / STEPS:.9f}")
