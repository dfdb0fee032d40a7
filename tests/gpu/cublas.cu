/*
 * Products by cuBLAS, in single and double precision, of matrices of small whole numbers: every sum is exact, whatever
 * order cuBLAS takes. Checked against plain loops. A guest in a small machine runs it, so sizes are modest.
 */
#include <cstdio>
#include <cublas_v2.h>
#include <vector>

#include "../programs/check.h"

static const int ROWS = 192, COLUMNS = 160, INNER = 128;

static cublasStatus_t multiply(cublasHandle_t cublas, const double *left, const double *right, double *product)
{
    const double one = 1, zero = 0;
    return cublasDgemm(cublas, CUBLAS_OP_N, CUBLAS_OP_N, ROWS, COLUMNS, INNER, &one, left, ROWS, right, INNER, &zero,
                       product, ROWS);
}

static cublasStatus_t multiply(cublasHandle_t cublas, const float *left, const float *right, float *product)
{
    const float one = 1, zero = 0;
    return cublasSgemm(cublas, CUBLAS_OP_N, CUBLAS_OP_N, ROWS, COLUMNS, INNER, &one, left, ROWS, right, INNER, &zero,
                       product, ROWS);
}

template <typename Number> static Number *on_device(const std::vector<Number> &values)
{
    Number *copy;
    CHECK(cudaMalloc(&copy, values.size() * sizeof(Number)));
    CHECK(cudaMemcpy(copy, values.data(), values.size() * sizeof(Number), cudaMemcpyHostToDevice));
    return copy;
}

template <typename Number> static bool is_right(cublasHandle_t cublas, const char *name)
{
    std::vector<Number> left(ROWS * INNER), right(INNER * COLUMNS), product(ROWS * COLUMNS);
    for (size_t i = 0; i < left.size(); i++) {
        left[i] = Number(i * 7 % 11) - 5;
    }
    for (size_t i = 0; i < right.size(); i++) {
        right[i] = Number(i * 5 % 13) - 6;
    }
    Number *left_there = on_device(left), *right_there = on_device(right), *product_there = on_device(product);
    cublasStatus_t status = multiply(cublas, left_there, right_there, product_there);
    if (status != CUBLAS_STATUS_SUCCESS) {
        std::printf("%s: %s\n", name, cublasGetStatusString(status));
        return false;
    }
    CHECK(cudaMemcpy(product.data(), product_there, product.size() * sizeof(Number), cudaMemcpyDeviceToHost));
    int nr_wrong = 0;
    double sum = 0;
    for (int column = 0; column < COLUMNS; column++) {
        for (int row = 0; row < ROWS; row++) {
            Number wanted = 0;
            for (int i = 0; i < INNER; i++) {
                wanted += left[i * ROWS + row] * right[column * INNER + i];
            }
            nr_wrong += product[column * ROWS + row] != wanted;
            sum += (row + 1.0) * product[column * ROWS + row];
        }
    }
    std::printf("%s: %d of %d wrong, weighted sum %.0f\n", name, nr_wrong, ROWS * COLUMNS, sum);
    CHECK(cudaFree(left_there));
    CHECK(cudaFree(right_there));
    CHECK(cudaFree(product_there));
    return nr_wrong == 0 && sum != 0;
}

int main()
{
    cublasHandle_t cublas;
    cublasStatus_t status = cublasCreate(&cublas);
    if (status != CUBLAS_STATUS_SUCCESS) {
        std::printf("cublasCreate: %s\n", cublasGetStatusString(status));
        return verdict(false);
    }
    bool singles = is_right<float>(cublas, "single"), doubles = is_right<double>(cublas, "double");
    return verdict(singles && doubles && cublasDestroy(cublas) == CUBLAS_STATUS_SUCCESS);
}
