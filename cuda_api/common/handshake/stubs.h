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

#define FGV_PROCESSORS_STUBS(X) \
    X(processors, 1) X(processors, 2) X(processors, 3) X(processors, 4) X(processors, 5) X(processors, 6) \
    X(processors, 7) X(processors, 8) X(processors, 9) X(processors, 10) X(processors, 11) X(processors, 12) \
    X(processors, 13) X(processors, 14) X(processors, 15) X(processors, 16)

#define FGV_MODULES_STUBS(X) \
    X(modules, 1) X(modules, 2) X(modules, 3) X(modules, 4) X(modules, 5) X(modules, 6) X(modules, 8) \
    X(modules, 9) X(modules, 10) X(modules, 11) X(modules, 12) X(modules, 13) X(modules, 14) X(modules, 15) \
    X(modules, 16) X(modules, 17) X(modules, 18) X(modules, 19) X(modules, 20) X(modules, 21) X(modules, 22) \
    X(modules, 23) X(modules, 24) X(modules, 25) X(modules, 26) X(modules, 27) X(modules, 28) X(modules, 29) \
    X(modules, 30) X(modules, 31) X(modules, 32) X(modules, 33) X(modules, 34) X(modules, 35) X(modules, 36) \
    X(modules, 37) X(modules, 38) X(modules, 39) X(modules, 40) X(modules, 41) X(modules, 42) X(modules, 43) \
    X(modules, 44) X(modules, 45) X(modules, 46) X(modules, 47) X(modules, 48) X(modules, 49) X(modules, 50) \
    X(modules, 51) X(modules, 52) X(modules, 53) X(modules, 54) X(modules, 55) X(modules, 56) X(modules, 57) \
    X(modules, 58) X(modules, 59) X(modules, 60) X(modules, 61) X(modules, 62) X(modules, 63) X(modules, 64) \
    X(modules, 65) X(modules, 66) X(modules, 67) X(modules, 68) X(modules, 69) X(modules, 70) X(modules, 71) \
    X(modules, 72) X(modules, 73) X(modules, 74) X(modules, 75) X(modules, 76) X(modules, 77) X(modules, 78) \
    X(modules, 79) X(modules, 80) X(modules, 81) X(modules, 82) X(modules, 83) X(modules, 84) X(modules, 85) \
    X(modules, 86) X(modules, 87) X(modules, 88) X(modules, 89) X(modules, 90) X(modules, 91) X(modules, 92) \
    X(modules, 94) X(modules, 95) X(modules, 96) X(modules, 97) X(modules, 98)

/* clang-format on */

#endif
