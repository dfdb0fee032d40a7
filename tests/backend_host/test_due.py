"""When the end of what is on the device is expected: by how long kernels took, and by how long copies took."""

import ctypes

import pytest

from tests.backend_host.parts import load_parts

KERNEL_NS, COPY_NS = 45_000, 60_000
NR_KERNELS, NR_COPIES = 31, 48


@pytest.fixture(scope="module")
def due(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """due.c by itself, with the one other thing that it asks for."""
    library = load_parts("due", ["due", "running"], tmp_path_factory.mktemp("due"))
    library.ended.argtypes = [ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64]
    library.expected.argtypes = [ctypes.c_uint32, ctypes.c_uint32, ctypes.c_bool]
    library.expected.restype = ctypes.c_uint64
    library.begin()
    return library


def work_in_rounds(due: ctypes.CDLL, nr_rounds: int) -> None:
    """Copies one by one, as they are staged; then kernels with the first copy behind them, seen to end together."""
    for _ in range(nr_rounds):
        for _ in range(NR_COPIES):
            due.ended(1, 1, COPY_NS)
        due.ended(NR_KERNELS + 1, 1, NR_KERNELS * KERNEL_NS + COPY_NS)


@pytest.mark.parametrize("is_marked", [True, False])
def test_kernels_among_copies_are_expected_to_take_what_kernels_took(due: ctypes.CDLL, is_marked: bool) -> None:
    due.begin()
    assert due.expected(1, 0, is_marked) == 0
    work_in_rounds(due, 2)
    assert due.expected(NR_KERNELS, 0, is_marked) == NR_KERNELS * KERNEL_NS
    assert due.expected(NR_KERNELS + 4, 4, is_marked) == NR_KERNELS * KERNEL_NS + 4 * COPY_NS


def test_what_is_of_one_kind_is_expected_by_what_is_known(due: ctypes.CDLL) -> None:
    """Copies before any has ended, say, by what kernels took."""
    due.begin()
    due.ended(2, 0, 2 * KERNEL_NS)
    assert due.expected(3, 0, True) == 3 * KERNEL_NS
    assert due.expected(3, 1, True) == 3 * KERNEL_NS


def test_more_copies_than_submissions_are_no_more_than_all(due: ctypes.CDLL) -> None:
    """Those that a host function of the guest holds are counted as copies, and not as what runs."""
    due.begin()
    work_in_rounds(due, 1)
    due.ended(1, 5, COPY_NS)
    assert due.expected(2, 7, False) == 2 * COPY_NS
