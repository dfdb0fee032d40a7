"""A library that workers have loaded before libc: what takes their own work off a GPU. See channels.h."""

from pathlib import Path

SOURCE = Path(__file__).with_name("channels.c")
LIBRARY = Path(__file__).with_name("libfairgv-channels.so")
"""Made by `make build`."""
