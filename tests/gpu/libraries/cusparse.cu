/* Sparse matrices by cuSPARSE: a product, a product of matrices, a triangular solution, an incomplete LU. */
#include <cusparse.h>
#include <vector>

#include "library.h"

int main()
{
    const int N = 500;
    std::vector<int> offsets(1, 0), columns;
    std::vector<double> values, x(N, 1.0);
    for (int i = 0; i < N; i++) {
        for (int j = i - 2; j <= i + 2; j++) {
            if (j >= 0 && j < N) {
                columns.push_back(j);
                values.push_back(i == j ? 10 + i % 3 : -1 - (i + j) % 2);
            }
        }
        offsets.push_back((int)columns.size());
    }
    const int nnz = (int)columns.size();
    int *d_offsets = on_device(offsets), *d_columns = on_device(columns);
    double *d_values = on_device(values), *d_x = on_device(x), *d_y = on_device(x);
    const double one = 1, zero = 0;
    cusparseHandle_t handle;
    cusparseSpMatDescr_t a;
    cusparseDnVecDescr_t vx, vy;
    size_t bytes = 0;
    DO(cusparseCreate(&handle));
    DO(cusparseCreateCsr(&a, N, N, nnz, d_offsets, d_columns, d_values, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
                         CUSPARSE_INDEX_BASE_ZERO, CUDA_R_64F));
    DO(cusparseCreateDnVec(&vx, N, d_x, CUDA_R_64F));
    DO(cusparseCreateDnVec(&vy, N, d_y, CUDA_R_64F));
    DO(cusparseSpMV_bufferSize(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, a, vx, &zero, vy, CUDA_R_64F,
                               CUSPARSE_SPMV_CSR_ALG2, &bytes));
    char *buffer = on_device(std::vector<char>(bytes + 1));
    DO(cusparseSpMV(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, a, vx, &zero, vy, CUDA_R_64F,
                    CUSPARSE_SPMV_CSR_ALG2, buffer));
    say_doubles("product", d_y, N);

    cusparseSpSVDescr_t solution;
    cusparseFillMode_t lower = CUSPARSE_FILL_MODE_LOWER;
    DO(cusparseSpMatSetAttribute(a, CUSPARSE_SPMAT_FILL_MODE, &lower, sizeof(lower)));
    DO(cusparseSpSV_createDescr(&solution));
    DO(cusparseSpSV_bufferSize(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, a, vx, vy, CUDA_R_64F,
                               CUSPARSE_SPSV_ALG_DEFAULT, solution, &bytes));
    buffer = on_device(std::vector<char>(bytes + 1));
    DO(cusparseSpSV_analysis(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, a, vx, vy, CUDA_R_64F,
                             CUSPARSE_SPSV_ALG_DEFAULT, solution, buffer));
    DO(cusparseSpSV_solve(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, a, vx, vy, CUDA_R_64F,
                          CUSPARSE_SPSV_ALG_DEFAULT, solution));
    say_doubles("solved", d_y, N);
    DO(cusparseSpSV_destroyDescr(solution));

    cusparseMatDescr_t description;
    csrilu02Info_t info;
    int size = 0, place = 0;
    DO(cusparseCreateMatDescr(&description));
    DO(cusparseCreateCsrilu02Info(&info));
    DO(cusparseDcsrilu02_bufferSize(handle, N, nnz, description, d_values, d_offsets, d_columns, info, &size));
    buffer = on_device(std::vector<char>(size + 1));
    DO(cusparseDcsrilu02_analysis(handle, N, nnz, description, d_values, d_offsets, d_columns, info,
                                  CUSPARSE_SOLVE_POLICY_USE_LEVEL, buffer));
    DO(cusparseXcsrilu02_zeroPivot(handle, info, &place));
    DO(cusparseDcsrilu02(handle, N, nnz, description, d_values, d_offsets, d_columns, info,
                         CUSPARSE_SOLVE_POLICY_USE_LEVEL, buffer));
    DO(cusparseXcsrilu02_zeroPivot(handle, info, &place));
    say_doubles("incomplete LU", d_values, nnz);
    DO(cusparseDestroyCsrilu02Info(info));
    DO(cusparseDestroyMatDescr(description));
    DO(cusparseDestroyDnVec(vx));
    DO(cusparseDestroyDnVec(vy));
    DO(cusparseDestroySpMat(a));
    DO(cusparseDestroy(handle));
    return 0;
}
