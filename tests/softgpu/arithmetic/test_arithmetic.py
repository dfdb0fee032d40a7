"""
softgpu's arithmetic, every form of every instruction on edge values and random ones: none is refused, approximations are within the manual's
bounds, and all is as a GPU computed it, whose answers are kept in answers.npz.

A failure names the forms that differ; `python -m tests.softgpu.arithmetic.compare` shows them all.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.softgpu import driver_harness
from tests.softgpu.arithmetic.answers import Answers, load
from tests.softgpu.arithmetic.catalogue import FAMILIES
from tests.softgpu.arithmetic.comparison import beyond_bounds, mismatches
from tests.softgpu.arithmetic.process import recorded


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    """What softgpu says to everything, on a device of its own."""
    driver_harness.build()
    folder = tmp_path_factory.mktemp("arithmetic")
    device = driver_harness.Device(folder)
    yield recorded(str(driver_harness.LIBRARY), list(FAMILIES), folder, device.environment())


@pytest.fixture(scope="module")
def kept() -> Answers:
    return load()


@pytest.mark.parametrize("name", FAMILIES)
def test_family_is_computed(name: str, computed: Answers) -> None:
    family = computed.families[name]
    assert family.refused == {}
    assert set(family.results) == {form.text for form in FAMILIES[name].forms}


@pytest.mark.parametrize("name", FAMILIES)
def test_approximations_are_within_the_bounds_of_the_manual(name: str, computed: Answers) -> None:
    assert not list(map(str, beyond_bounds(FAMILIES[name], computed)))


@pytest.mark.parametrize("name", FAMILIES)
def test_family_computes_what_the_gpu_computes(name: str, kept: Answers, computed: Answers) -> None:
    found = list(mismatches(FAMILIES[name], computed, kept))
    assert not found, f"{len(found)} of {len(FAMILIES[name].forms)} forms differ:\n" + "\n".join(map(str, found[:20]))


@pytest.mark.parametrize("name", FAMILIES)
def test_gpu_keeps_the_bounds_of_the_manual(name: str, kept: Answers) -> None:
    """If not, our reading of the manual is wrong, and so is what we let pass."""
    assert not list(map(str, beyond_bounds(FAMILIES[name], kept)))
