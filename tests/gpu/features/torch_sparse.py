"""Sparse matrices of PyTorch: by coordinates, by rows, and their product with each other."""

import torch
from report import part, say

torch.manual_seed(0)


@part
def sparse() -> None:
    places = torch.randint(0, 500, (2, 5000), device="cuda")
    by_coordinates = torch.sparse_coo_tensor(places, torch.ones(5000, device="cuda"), (500, 500)).coalesce()
    say("coordinates", torch.sparse.mm(by_coordinates, torch.ones(500, 20, device="cuda")))
    say("rows", by_coordinates.to_sparse_csr() @ torch.ones(500, 3, device="cuda"))
    say("with each other", torch.sparse.mm(by_coordinates, by_coordinates).values())
