/* Dense systems by cuSOLVER: LU, Cholesky, QR, eigenvalues and singular values of a matrix of whole numbers. */
#include <cusolverDn.h>
#include <vector>

#include "library.h"

int main()
{
    const int N = 48;
    std::vector<double> matrix(N * N), right(N, 1.0);
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < N; j++) {
            matrix[j * N + i] = i == j ? 100 + i : (i * 7 + j * 7) % 5;
        }
    }
    cusolverDnHandle_t handle;
    DO(cusolverDnCreate(&handle));
    double *a = on_device(matrix), *b = on_device(right), *values = on_device(right);
    int *pivots = on_device(std::vector<int>(N)), *info = on_device(std::vector<int>(1)), bytes = 0;
    DO(cusolverDnDgetrf_bufferSize(handle, N, N, a, N, &bytes));
    double *work = on_device(std::vector<double>(bytes));
    DO(cusolverDnDgetrf(handle, N, N, a, N, work, pivots, info));
    DO(cusolverDnDgetrs(handle, CUBLAS_OP_N, N, 1, a, N, pivots, b, N, info));
    say_doubles("solved", b, N);
    a = on_device(matrix);
    DO(cusolverDnDpotrf_bufferSize(handle, CUBLAS_FILL_MODE_LOWER, N, a, N, &bytes));
    work = on_device(std::vector<double>(bytes + 1));
    DO(cusolverDnDpotrf(handle, CUBLAS_FILL_MODE_LOWER, N, a, N, work, bytes, info));
    say("positive", from_device(info, 1));
    a = on_device(matrix);
    DO(cusolverDnDsyevd_bufferSize(handle, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, N, a, N, values, &bytes));
    work = on_device(std::vector<double>(bytes));
    DO(cusolverDnDsyevd(handle, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, N, a, N, values, work, bytes, info));
    say_doubles("eigenvalues", values, N);
    a = on_device(matrix);
    DO(cusolverDnDgesvd_bufferSize(handle, N, N, &bytes));
    work = on_device(std::vector<double>(bytes));
    double *u = on_device(matrix), *v = on_device(matrix);
    DO(cusolverDnDgesvd(handle, 'A', 'A', N, N, a, N, values, u, N, v, N, work, bytes, NULL, info));
    say_doubles("singular values", values, N);
    DO(cusolverDnDestroy(handle));
    return 0;
}
