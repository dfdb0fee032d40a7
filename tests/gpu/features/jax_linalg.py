"""Linear algebra, Fourier transforms and convolutions of JAX: cuSOLVER, cuFFT, cuBLAS and cuDNN."""

import jax
import jax.numpy as jnp
from report import part, say, say_each

jax.config.update("jax_enable_x64", True)
key = jax.random.key(0)
matrix = jax.random.normal(key, (64, 64))

say_each(
    {
        "singular values": lambda: jnp.linalg.svd(matrix, compute_uv=False),
        "eigenvalues": lambda: jnp.linalg.eigvalsh(matrix + matrix.T),
        "cholesky": lambda: jnp.linalg.cholesky(matrix @ matrix.T + 64 * jnp.eye(64)),
        "solve": lambda: jnp.linalg.solve(matrix, matrix),
        "qr": lambda: jnp.abs(jnp.linalg.qr(matrix)[1]),
        "fft": lambda: jnp.fft.fft2(matrix),
    }
)
images = jax.random.normal(key, (4, 32, 32, 8), dtype=jnp.float32)
window = jax.random.normal(key, (3, 3, 8, 16), dtype=jnp.float32)


@jax.jit
def convolved(x: jax.Array, w: jax.Array) -> jax.Array:
    """Without a change of the images' size."""
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


# JAX chooses among algorithms by their times, and they differ in what they round: two digits are told here.


@part
def convolution() -> None:
    say("convolution", f"{float(jnp.square(convolved(images, window)).mean()):.2g}")


@part
def bfloat16() -> None:
    rows = images.astype(jnp.bfloat16).reshape(-1, 8)
    columns = window.astype(jnp.bfloat16).reshape(8, -1)
    say("bfloat16", f"{float(jnp.abs((rows @ columns).astype(jnp.float32)).mean()):.2g}")
