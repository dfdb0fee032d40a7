"""The comparison of two devices' textures finds what differs, and refuses outputs of different reads."""

import pytest

from tests.programs.compare_values import compare

ONE = "tex1D wrap point 1 0 0 0: 0x1p+0\ntex1D wrap point 2 0 0 0: nan\ntex2D clamp 0.5 1 0 -3: -0x1.8p-1\ntex2D clamp 1 reads\n"


def test_differences_by_kind() -> None:
    kinds = compare(ONE, ONE.replace("-0x1.8p-1", "-0x1p-1"))
    assert kinds.keys() == {"tex1D wrap point", "tex2D clamp"}
    assert (kinds["tex1D wrap point"].nr_values, kinds["tex1D wrap point"].nr_different) == (2, 0)
    assert (kinds["tex2D clamp"].nr_different, kinds["tex2D clamp"].largest) == (1, 0.25)


def test_other_reads() -> None:
    with pytest.raises(ValueError):
        compare(ONE, ONE.replace("tex2D", "tex3D"))
    with pytest.raises(ValueError):
        compare(ONE, ONE.splitlines()[0])
