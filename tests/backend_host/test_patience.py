"""How long an idle holder keeps the grant, in C: the rule that the simulator goes by, to the ns."""

from dataclasses import asdict

from backend_host.worker._worker import ffi, lib
from hypothesis import given
from hypothesis import strategies as st

from scheduler.patience import SWITCH_NS, View, patience_ns

TIMES = st.one_of(st.integers(0, 2 * SWITCH_NS), st.integers(0, 1 << 40))


@given(st.builds(View, *[TIMES] * 6, st.booleans(), st.booleans()))
def test_it_is_the_rule_of_the_simulator(view: View) -> None:
    assert lib.fgw_patience_ns(ffi.new("struct fgw_patience_view *", asdict(view))) == patience_ns(view)
