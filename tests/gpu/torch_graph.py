"""PyTorch under capture, by hand: `python tests/gpu/torch_graph.py`, natively and with FairGV; both must print the same but for times.

A training step of a small network is captured with torch.cuda.graph and replayed; it must give what eager steps give. Convolutions
and matrix products bring cuDNN and cuBLAS into the capture, dropout the random numbers of a graph.
"""

import sys
import time

import torch  # type: ignore[import-not-found, unused-ignore]

NR_STEPS = 50


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(16 * 32 * 32, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 10),
    ).cuda()


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    optimizer.zero_grad(set_to_none=True)
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


def train(*, is_captured: bool) -> list[float]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.zeros(32, 3, 32, 32, device="cuda"), torch.zeros(32, dtype=torch.long, device="cuda")
    state = {name: value.clone() for name, value in model.state_dict().items()}
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(model, optimizer, x, y)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    if is_captured:
        with torch.cuda.graph(graph):
            loss = step(model, optimizer, x, y)
    model.load_state_dict(state)
    generator = torch.Generator(device="cuda").manual_seed(1)
    losses = []
    for _ in range(NR_STEPS):
        x.copy_(torch.randn(x.shape, generator=generator, device="cuda"))
        y.copy_(torch.randint(10, y.shape, generator=generator, device="cuda"))
        if is_captured:
            graph.replay()
        else:
            loss = step(model, optimizer, x, y)
        losses.append(loss.item())
    return losses


def dropout_differs() -> bool:
    x, graph = torch.ones(4096, device="cuda"), torch.cuda.CUDAGraph()
    torch.nn.functional.dropout(x)
    with torch.cuda.graph(graph):
        y = torch.nn.functional.dropout(x)
    graph.replay()
    first = y.clone()
    graph.replay()
    return not torch.equal(first, y)


def forbidden() -> str:
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            torch.ones(4, device="cuda").sum().item()
    except RuntimeError as error:
        return "not permitted" if "capturing" in str(error) else str(error)
    return "permitted"


def main() -> int:
    torch.backends.cudnn.deterministic = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    eager, captured = train(is_captured=False), train(is_captured=True)
    worst = max(abs(a - b) for a, b in zip(eager, captured, strict=True))
    print(f"{NR_STEPS} steps, first and last loss {captured[0]:.3f} {captured[-1]:.3f}, as eager: {worst < 1e-4}")
    print(f"replays draw fresh random numbers: {dropout_differs()}")
    print(f"a synchronisation in a capture: {forbidden()}")
    x, graph = torch.ones(64, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(100):
            x.add_(1)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(1000):
        graph.replay()
    torch.cuda.synchronize()
    print(f"1000 replays of 100 kernels: {(time.perf_counter() - begin) * 1e3:.1f} ms", file=sys.stderr)
    print(f"x is {x[0].item():.0f}")
    return 0 if worst < 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main())
