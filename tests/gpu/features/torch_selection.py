"""PyTorch's sorting, counting, searching and random numbers, to the last bit."""

import torch
from report import say_each

torch.manual_seed(0)

integers = torch.randint(0, 1000, (100_000,), device="cuda")
numbers = torch.randn(100_000, device="cuda")
points = numbers[:300].view(-1, 3)
zeros = torch.zeros(1000, device="cuda", dtype=torch.int64)

say_each(
    {
        "sort": lambda: numbers.sort()[0],
        "topk": lambda: numbers.topk(100)[0],
        "unique": lambda: torch.unique(integers),
        "cumsum": lambda: integers.cumsum(0),
        "bincount": lambda: torch.bincount(integers),
        "histc": lambda: numbers.histc(50),
        "nonzero": lambda: (integers > 500).nonzero().sum(),
        "scatter_add": lambda: zeros.scatter_add(0, integers, torch.ones_like(integers)),
        "kthvalue": lambda: numbers.kthvalue(500)[0],
        "median": lambda: torch.median(numbers),
        "mode": lambda: integers.mode()[0],
        "searchsorted": lambda: torch.searchsorted(numbers.sort()[0], numbers).sum(),
        "cdist": lambda: torch.cdist(points, points),
    }
)
say_each(
    {
        "multinomial": lambda: torch.multinomial(torch.ones(1000, device="cuda"), 10),
        "randperm": lambda: torch.randperm(50_000, device="cuda"),
        "normal": lambda: torch.normal(numbers, 1.0),
        "dropout": lambda: torch.nn.functional.dropout(numbers, 0.3),
    }
)
