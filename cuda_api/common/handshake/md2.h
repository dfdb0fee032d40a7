/*
 * HMAC-MD2, because the runtime's integrity check is one. Of no cryptographic value whatever: MD2 has been broken since
 * 1997. Usage: fgv_hmac_md2_begin, fgv_hmac_md2_update any number of times, fgv_hmac_md2_end once.
 */
#ifndef CUDA_API_HANDSHAKE_MD2_H
#define CUDA_API_HANDSHAKE_MD2_H

#include <stddef.h>
#include <stdint.h>

#include "cuda_api/handshake.h"

#define FGV_MD2_BLOCK_BYTES 16

struct fgv_md2 {
    uint8_t state[FGV_MD2_BLOCK_BYTES];
    uint8_t checksum[FGV_MD2_BLOCK_BYTES];
    uint8_t block[FGV_MD2_BLOCK_BYTES];
    size_t nr_buffered;
};

struct fgv_hmac_md2 {
    struct fgv_md2 inner;
    uint8_t outer_key[FGV_MD2_BLOCK_BYTES];
};

FGV_HIDDEN void fgv_md2_begin(struct fgv_md2 *md2);
FGV_HIDDEN void fgv_md2_update(struct fgv_md2 *md2, const void *data, size_t bytes);
FGV_HIDDEN void fgv_md2_end(struct fgv_md2 *md2, uint8_t digest[FGV_MD2_BLOCK_BYTES]);

FGV_HIDDEN void fgv_hmac_md2_begin(struct fgv_hmac_md2 *hmac, const uint8_t key[FGV_MD2_BLOCK_BYTES]);
FGV_HIDDEN void fgv_hmac_md2_update(struct fgv_hmac_md2 *hmac, const void *data, size_t bytes);
FGV_HIDDEN void fgv_hmac_md2_end(struct fgv_hmac_md2 *hmac, uint8_t digest[FGV_MD2_BLOCK_BYTES]);

#endif
