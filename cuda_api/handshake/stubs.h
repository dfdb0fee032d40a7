/*
 * The slots whose meaning nobody outside NVIDIA has published, by table: X(table, slot) for each. See tables.c.
 */
#ifndef CUDA_API_HANDSHAKE_STUBS_H
#define CUDA_API_HANDSHAKE_STUBS_H

/* It would put each entry at its own indentation. */
/* clang-format off */
#define FGV_CUDART_INTERFACE_STUBS(X) \
    X(cudart_interface, 3) X(cudart_interface, 4) X(cudart_interface, 5) X(cudart_interface, 9) \
    X(cudart_interface, 11)

#define FGV_INTEGRITY_STUBS(X) \
    X(integrity, 2)

#define FGV_CONTEXT_CHECKS_STUBS(X) \
    X(context_checks, 1) X(context_checks, 4) X(context_checks, 5) X(context_checks, 6) X(context_checks, 7) \
    X(context_checks, 8) X(context_checks, 9) X(context_checks, 10) X(context_checks, 11) X(context_checks, 12) \
    X(context_checks, 13) X(context_checks, 14)

#define FGV_IDENTITIES_STUBS(X) \
    X(identities, 1) X(identities, 2) X(identities, 3) X(identities, 5) X(identities, 6) X(identities, 7) \
    X(identities, 8) X(identities, 9) X(identities, 10) X(identities, 11) X(identities, 12) X(identities, 13) \
    X(identities, 14) X(identities, 15) X(identities, 16) X(identities, 17) X(identities, 18) X(identities, 19) \
    X(identities, 20) X(identities, 21) X(identities, 22) X(identities, 23) X(identities, 24) X(identities, 25) \
    X(identities, 26) X(identities, 27) X(identities, 28) X(identities, 29) X(identities, 30) X(identities, 31) \
    X(identities, 32) X(identities, 33) X(identities, 34) X(identities, 35) X(identities, 36) X(identities, 37) \
    X(identities, 38) X(identities, 40) X(identities, 41) X(identities, 42) X(identities, 43) X(identities, 44) \
    X(identities, 45) X(identities, 46) X(identities, 47) X(identities, 48) X(identities, 49) X(identities, 50) \
    X(identities, 52) X(identities, 53) X(identities, 54) X(identities, 55) X(identities, 56) X(identities, 57) \
    X(identities, 58) X(identities, 59) X(identities, 60) X(identities, 61) X(identities, 62) X(identities, 63) \
    X(identities, 64) X(identities, 65) X(identities, 66) X(identities, 67) X(identities, 68) X(identities, 69) \
    X(identities, 70) X(identities, 71) X(identities, 72) X(identities, 73) X(identities, 74) X(identities, 75) \
    X(identities, 76) X(identities, 77) X(identities, 78) X(identities, 79) X(identities, 80) X(identities, 81) \
    X(identities, 82) X(identities, 83) X(identities, 84) X(identities, 85) X(identities, 86) X(identities, 87) \
    X(identities, 88) X(identities, 89) X(identities, 90) X(identities, 91) X(identities, 92)

/* clang-format on */

#endif
