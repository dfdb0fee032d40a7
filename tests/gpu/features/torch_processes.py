"""PyTorch in several processes: a DataLoader that pins memory, tensors for spawned processes, the refusal in a forked one."""

import os

import torch
import torch.multiprocessing as mp
from report import part, say
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    """64 tensors, each of one number."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, i: int) -> torch.Tensor:
        return torch.full((32,), float(i))


def scaled_sum(i: int, answers: mp.Queue, values: torch.Tensor) -> None:
    """A spawned process, with a tensor of the GPU that its parent gave it."""
    answers.put((i, (values * i).sum().item()))


def loader() -> None:
    batches = DataLoader(Numbers(), batch_size=8, num_workers=3, pin_memory=True)
    say("loader", sum(batch.cuda(non_blocking=True).sum() for batch in batches))


def spawn() -> None:
    context = mp.get_context("spawn")
    answers = context.Queue()
    values = torch.ones(1000, device="cuda")
    children = [context.Process(target=scaled_sum, args=(i, answers, values)) for i in range(2)]
    for child in children:
        child.start()
    found = sorted(answers.get(timeout=60) for _ in children)
    for child in children:
        child.join()
    say("spawned", found)


def fork() -> None:
    pid = os.fork()
    if pid == 0:
        try:
            torch.ones(1, device="cuda")
            status = 1
        except RuntimeError as error:
            status = 0 if "fork" in str(error) else 2
        os._exit(status)
    say("forked", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


if __name__ == "__main__":  # a spawned process imports this file, too
    part(loader)
    part(spawn)
    part(fork)
