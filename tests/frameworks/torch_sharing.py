"""Tensors of the GPU between two processes by torch.multiprocessing, natively and with FairGV: `python torch_sharing.py`.

The producer makes each tensor with work that takes a while and puts it without waiting for it: only the event that PyTorch sends along tells
the consumer's stream when it is ready. The consumer adds them up and sends back tensors of its own. More go than a driver, or FairGV, has
events to give, since the consumer never destroys those that it opens.
"""

import sys

import torch  # type: ignore[import-not-found, unused-ignore]
import torch.multiprocessing as mp  # type: ignore[import-not-found, unused-ignore]

SIDE = 1024
NR_LARGE, NR_SMALL = 32, 6000


def made(i: int) -> torch.Tensor:
    """A tensor of `i`, at the end of work that a consumer who does not wait would overtake."""
    identity = torch.eye(SIDE, device="cuda")
    values = torch.full((SIDE, SIDE), float(i), device="cuda")
    for _ in range(20):
        values = values @ identity
    return values


def produce(there: mp.Queue, back: mp.Queue) -> None:
    for i in range(NR_LARGE):
        there.put(made(i))
    for i in range(NR_SMALL):
        there.put(torch.full((16,), i, device="cuda"))
        if i % 100 == 99:
            back.get()  # so that not too many are on their way
    answers = [back.get() for _ in range(NR_LARGE)]
    print("answers", [float(answer.sum()) for answer in answers], flush=True)
    del answers
    there.put(None)
    back.get()


def consume(there: mp.Queue, back: mp.Queue) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    sums, kept = [], []
    for i in range(NR_LARGE):
        received = there.get()
        sums.append(float(received.sum()) / SIDE**2)
        kept.append(torch.full((4,), float(i), device="cuda"))
        del received
    print("sums", sums, flush=True)
    total = torch.zeros(16, dtype=torch.int64, device="cuda")
    for i in range(NR_SMALL):
        total += there.get()
        if i % 100 == 99:
            back.put(i)
    print("total", int(total.sum()), flush=True)
    for answer in kept:
        back.put(answer)
    assert there.get() is None
    back.put(None)


def main() -> int:
    torch.backends.cuda.matmul.allow_tf32 = False
    mp.set_start_method("spawn")
    there, back = mp.Queue(), mp.Queue()
    consumer = mp.Process(target=consume, args=(there, back))
    consumer.start()
    produce(there, back)
    consumer.join()
    print("the consumer ended with", consumer.exitcode)
    return int(consumer.exitcode or 0)


if __name__ == "__main__":
    sys.exit(main())
