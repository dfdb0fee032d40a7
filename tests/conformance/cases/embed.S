    .section .rodata
    .globl kernels_ptx
kernels_ptx:
    .incbin KERNELS
    .byte 0
    .section .note.GNU-stack,"",@progbits
