#!/usr/bin/env python3
"""Networks over sequences as critical programs of pairs: `torch_networks.py lstm|gru [--pause-us US]`. Needs a GPU and PyTorch.

lstm: classifies 16 texts of 128 words: an embedding, an LSTM both ways, a layer over the mean. gru: writes 16 texts, 16 words each, one word
after the other: a GRU of two layers, and the likeliest word of 8,192 comes next. Weights are random, the same in each run.

A round ends when the answer is on the host. Wrong as to the GPU alone: in gru's rounds the host launches some 100 kernels.
"""

import argparse
import sys

import torch
from rounds import add_options, obey

NR_FIRST = 5
"""Rounds before any counts: kernels are loaded, and cuDNN chooses among them."""
TEXTS, LENGTH, WORDS, WIDTH, CLASSES, WRITTEN = 16, 128, 8192, 512, 4, 16


class Classifier(torch.nn.Module):
    """Of texts."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(WORDS, WIDTH)
        self.layers = torch.nn.LSTM(WIDTH, WIDTH, bidirectional=True, batch_first=True)
        self.last = torch.nn.Linear(2 * WIDTH, CLASSES)

    def forward(self, texts: torch.Tensor) -> torch.Tensor:
        found, _ = self.layers(self.embedding(texts))
        return self.last(found.mean(1)).argmax(1)


class Writer(torch.nn.Module):
    """Of texts."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(WORDS, WIDTH)
        self.layers = torch.nn.GRU(WIDTH, WIDTH, num_layers=2, batch_first=True)
        self.last = torch.nn.Linear(WIDTH, WORDS)

    def forward(self, texts: torch.Tensor) -> torch.Tensor:
        word, state, written = texts[:, :1], None, []
        for _ in range(WRITTEN):
            found, state = self.layers(self.embedding(word), state)
            word = self.last(found).argmax(2)
            written.append(word)
        return torch.cat(written, 1)


NETWORKS = {"lstm": Classifier, "gru": Writer}


def main() -> int:
    parser = argparse.ArgumentParser(prog="torch_networks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("network", choices=sorted(NETWORKS))
    add_options(parser)
    options = parser.parse_args()
    torch.manual_seed(0)
    network = NETWORKS[options.network]().cuda().eval()
    texts = torch.randint(WORDS, (TEXTS, LENGTH)).cuda()

    @torch.inference_mode()
    def make_round() -> None:
        network(texts).cpu()

    for _ in range(NR_FIRST):
        make_round()
    return obey(make_round, options.pause_us)


if __name__ == "__main__":
    sys.exit(main())
