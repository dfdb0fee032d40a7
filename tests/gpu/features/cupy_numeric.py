"""CuPy's mathematics: sorting, transforms, solvers and statistics, and SciPy's sparse matrices, filters and special functions."""

import cupy
import cupyx.scipy.ndimage
import cupyx.scipy.signal
import cupyx.scipy.sparse
import cupyx.scipy.special
from report import part, say, say_each

cupy.random.seed(0)
matrix = cupy.random.rand(256, 256)

say_each(
    {
        "sort": lambda: cupy.sort(matrix.ravel()),
        "argsort": lambda: cupy.argsort(matrix.ravel()),
        "unique": lambda: cupy.unique(cupy.random.randint(0, 100, 1000)),
        "fft": lambda: cupy.fft.fft2(matrix),
        "singular values": lambda: cupy.linalg.svd(matrix, compute_uv=False),
        "eigenvalues": lambda: cupy.linalg.eigvalsh(matrix + matrix.T),
        "solve": lambda: cupy.linalg.solve(matrix, matrix),
        "einsum": lambda: cupy.einsum("ij,jk->ik", matrix, matrix),
        "histogram": lambda: cupy.histogram(matrix, 20)[0],
        "sum": lambda: matrix.sum(axis=1),
        "scan": lambda: cupy.cumsum(matrix),
        "percentile": lambda: cupy.percentile(matrix, 30),
    }
)


@part
def sparse() -> None:
    rows = cupyx.scipy.sparse.random(200, 200, 0.05, random_state=1, format="csr")
    say("sparse, by a vector", rows.dot(cupy.ones(200)))
    say("sparse, by itself", (rows @ rows).toarray())


@part
def images() -> None:
    say("filter", cupyx.scipy.ndimage.gaussian_filter(matrix, 2))
    say("labels", int(cupyx.scipy.ndimage.label(matrix > 0.7)[1]))


@part
def special() -> None:
    say("erf", cupyx.scipy.special.erf(matrix))


@part
def signal() -> None:
    say("convolution", cupyx.scipy.signal.convolve2d(matrix, matrix[:5, :5]))
