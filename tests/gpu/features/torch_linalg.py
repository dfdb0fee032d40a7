"""Linear algebra and Fourier transforms of PyTorch in double precision: cuSOLVER, cuBLAS and cuFFT."""

import torch
from report import say_each

torch.manual_seed(0)

any_matrix = torch.randn(96, 96, device="cuda", dtype=torch.float64)
positive = any_matrix @ any_matrix.T + 96 * torch.eye(96, device="cuda", dtype=torch.float64)
batch = any_matrix.expand(10, -1, -1)

say_each(
    {
        "singular values": lambda: torch.linalg.svdvals(any_matrix).sum().item(),
        "eigenvalues, symmetric": lambda: torch.linalg.eigvalsh(positive).sum().item(),
        "eigenvalues": lambda: torch.linalg.eigvals(any_matrix).abs().sum().item(),
        "qr": lambda: torch.linalg.qr(any_matrix)[1].abs().sum().item(),
        "solve": lambda: torch.linalg.solve(positive, any_matrix).sum().item(),
        "cholesky": lambda: torch.linalg.cholesky(positive).sum().item(),
        "lu": lambda: torch.linalg.lu_factor(any_matrix)[0].abs().sum().item(),
        "inverse": lambda: torch.linalg.inv(positive).sum().item(),
        "least squares": lambda: torch.linalg.lstsq(any_matrix, any_matrix)[0].abs().sum().item(),
        "batched product": lambda: torch.bmm(batch, batch).sum().item(),
        "exponential": lambda: torch.linalg.matrix_exp(any_matrix / 100).sum().item(),
    }
)
say_each(
    {
        "fft": lambda: torch.fft.fft(any_matrix).abs().sum().item(),
        "rfft2": lambda: torch.fft.rfft2(any_matrix).abs().sum().item(),
        "ifftn": lambda: torch.fft.ifftn(any_matrix.reshape(12, 8, 96)).abs().sum().item(),
        "stft": lambda: torch.stft(any_matrix.flatten(), 64, return_complex=True).abs().sum().item(),
    }
)
