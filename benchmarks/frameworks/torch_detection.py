#!/usr/bin/env python3
"""An inference server: one of torchvision's models that find objects answers requests of a few images. `torch_detection.py MODEL --batch N`.

A request is a batch of images that goes to the GPU and through the model, which scales them as it does all images, and what was found that
comes back to the host. Weights and images are random, the same in each run. The models then find about as many boxes as they may, but for
RetinaNet, which finds few.

Wrong as to the GPU alone: a request's time has the host's part, which for small batches is the larger one.
"""

import argparse
import sys

import torch
import torchvision
from serving import add_options, serve

MODELS = ("fasterrcnn_resnet50_fpn", "retinanet_resnet50_fpn", "maskrcnn_resnet50_fpn")
NR_FIRST = 5
"""Requests before any counts: kernels are loaded, and cuDNN chooses among them."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="torch_detection", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--size", type=int, default=480, metavar="N", help="of images, in pixels (default 480)")
    parser.add_argument("--batch", type=int, default=1, metavar="N", help="images of a request (default 1)")
    add_options(parser)
    options = parser.parse_args()
    if options.size < 1 or options.batch < 1:
        parser.error("--size and --batch are 1 or more")
    torch.manual_seed(0)
    model = torchvision.models.get_model(options.model, weights=None, weights_backbone=None).cuda().eval()
    images = torch.rand(options.batch, 3, options.size, options.size).pin_memory()

    @torch.inference_mode()
    def answer() -> None:
        for found in model(list(images.cuda(non_blocking=True))):
            for values in found.values():
                values.cpu()

    for _ in range(NR_FIRST):
        answer()
    return serve(answer, options.batch, options)


if __name__ == "__main__":
    sys.exit(main())
