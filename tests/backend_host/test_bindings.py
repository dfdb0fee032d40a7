"""Advice for a host without libvirt's module for Python: no pip beside a package, and the words of the distribution."""

import builtins
import sys
from pathlib import Path
from typing import Any

import pytest

from backend_host.vm.bindings import how_to_get
from backend_host.vm.connection import load_libvirt
from backend_host.vm.errors import VmError


@pytest.mark.parametrize(("has_dnf", "install"), [(False, "apt install"), (True, "dnf install")])
def test_a_package_takes_the_distributions(has_dnf: bool, install: str, tmp_path: Path) -> None:
    assert how_to_get(tmp_path, has_dnf=has_dnf) == f"{install} python3-libvirt"


@pytest.mark.parametrize(("has_dnf", "headers"), [(False, " libvirt-dev "), (True, " libvirt-devel ")])
def test_a_checkout_builds_its_own(has_dnf: bool, headers: str, tmp_path: Path) -> None:
    (tmp_path / "Makefile").touch()
    text = how_to_get(tmp_path, has_dnf=has_dnf)
    assert headers in text
    assert text.endswith(f"then: {sys.executable} -m pip install libvirt-python")


def test_the_distribution_is_known_by_its_installer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert how_to_get(tmp_path).startswith("apt ")
    dnf = tmp_path / "dnf"
    dnf.write_text("#!/bin/sh\n")
    dnf.chmod(0o755)
    assert how_to_get(tmp_path).startswith("dnf ")


def test_whoever_names_a_domain_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def refuse(name: str, *arguments: Any, **more: Any) -> Any:
        if name == "libvirt":
            raise ImportError("no libvirt.so.0")
        return imported(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(VmError) as caught:
        load_libvirt()
    assert str(caught.value).endswith(f"cannot be loaded here (no libvirt.so.0): {how_to_get()}")
