"""What the scripts of this folder print: one line for each result, and one for each part that the framework or the device lacks."""

import hashlib
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Part = Callable[[], None]


def say(name: str, value: Any) -> None:
    """One line: a tensor of PyTorch to the last bit, arrays and numbers to nine digits."""
    print(f"{name}: {_text(value)}", flush=True)


def part(action: Part) -> Part:
    """Runs a part of a script at once. One that fails says so in a line, and the next one runs."""
    _attempt(action.__name__, action)
    return action


def say_each(results: Mapping[str, Callable[[], Any]]) -> None:
    """Says many results, each of which may be lacking."""
    for name, result in results.items():
        _attempt(name, lambda name=name, result=result: say(name, result()))  # type: ignore[misc]


def _attempt(name: str, action: Part) -> None:
    try:
        action()
    except Exception as error:
        traceback.print_exc()
        message = (str(error).splitlines() or [""])[0]
        print(f"{name}: not done, {type(error).__name__}: {message[:160]}", flush=True)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.9g}"
    if hasattr(value, "detach"):  # PyTorch's
        exact = value.detach().float().cpu().contiguous()
        fingerprint = hashlib.md5(exact.numpy().tobytes()).hexdigest()[:8]
        return f"{tuple(exact.shape)} {exact.double().sum().item():.6g} {fingerprint}"
    if hasattr(value, "get"):  # CuPy's
        value = value.get()
    if hasattr(value, "__array__"):
        array = np.asarray(value)
        return f"{array.shape} {np.abs(array.astype(np.complex128)).sum():.9g}"
    return str(value)
