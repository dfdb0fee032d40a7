"""JAX's transformations: gradients, maps over a batch, loops, branches, and a step of training."""

import jax
import jax.numpy as jnp
from report import part, say

jax.config.update("jax_enable_x64", True)
key = jax.random.key(0)
matrix = jax.random.normal(key, (256, 256))


@part
def gradient() -> None:
    say("gradient", jax.jit(jax.grad(lambda x: jnp.tanh(x @ x).sum()))(matrix))


@part
def batch() -> None:
    say("batch", jax.vmap(jnp.sort)(matrix))


@part
def loops() -> None:
    _, seen = jax.lax.scan(lambda carry, row: (carry * 0.9 + row, carry), matrix[0], matrix)
    say("scan", seen)
    last, _ = jax.lax.while_loop(lambda x: x[1] < 50, lambda x: (jnp.sin(x[0]) + 1, x[1] + 1), (matrix, 0))
    say("while", last)


@part
def branches() -> None:
    choose = jax.jit(lambda x, is_sine: jax.lax.cond(is_sine, jnp.sin, jnp.cos, x))
    say("sine", choose(matrix, True))
    say("cosine", choose(matrix, False))


@part
def training() -> None:
    @jax.jit
    def step(weights: jax.Array, inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        loss, slope = jax.value_and_grad(lambda w: ((inputs @ w) ** 2).mean())(weights)
        return weights - 0.01 * slope, loss

    weights = jax.random.normal(key, (128, 128))
    inputs = jax.random.normal(key, (64, 128))
    for _ in range(50):
        weights, loss = step(weights, inputs)
    say("loss", float(loss))
