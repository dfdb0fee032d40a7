"""Variants of kernels as text: what is replaced, what is refused and why. What they compute is tested in tests/slicing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from cuda_api.generated.values import PersistentDescriptor, PersistentState
from cuda_api.ptx import format_module, parse
from cuda_api.ptx.syntax import Module
from cuda_api.ptx.variants import RunsWholeError, Whole, index, persist_kernel, slice_kernel, used_by
from cuda_api.ptx.variants.split import HOME_BYTES, NR_COUNTS

HEAD = ".version 8.0\n.target sm_75\n.address_size 64\n"
SAMPLES = Path(__file__).parent / "ptx_samples"
VARIABLES = """.global .align 4 .u32 counter;
.visible .global .align 4 .f32 unused[16];
.global .align 1 .b8 $str[3] = {104, 105, 0};
.const .align 4 .u32 factor = 7;
.extern .func (.param .b32 result) vprintf (.param .b64 format, .param .b64 arguments);
"""
BODY = """.reg .b32 %r<4>; .reg .b64 %rd<3>; .reg .pred %p<2>;
mov.u32 %r1, %ctaid.x; mov.u32 %r2, %nctaid.y; ld.const.u32 %r3, [factor];
mov.u64 %rd1, $str; @%p1 atom.global.add.u32 %r1, [counter+4], %r2;
{ .param .b64 a; .param .b64 b; .param .b32 c; st.param.b64 [a], %rd1; call (c), vprintf, (a, b); }
ret;"""


def module_of(body: str, before: str = "", tuning: str = "") -> Module:
    return parse(f"{HEAD}{before}.visible .entry k(.param .u64 out)\n{tuning}\n{{\n{body}\n}}\n")


def reason(body: str, before: str = "", tuning: str = "") -> Whole:
    """Why neither variant can be made."""
    reasons = set()
    for make in (slice_kernel, persist_kernel):
        with pytest.raises(RunsWholeError) as raised:
            make(module_of(body, before, tuning), "k", {})
        reasons.add(raised.value.reason)
    [only] = reasons
    return only


def persistent_reason(body: str, before: str = "") -> Whole:
    slice_kernel(module_of(body, before), "k", {})
    with pytest.raises(RunsWholeError) as raised:
        persist_kernel(module_of(body, before), "k", {})
    return raised.value.reason


def test_what_a_kernel_uses() -> None:
    used = used_by(module_of(BODY, VARIABLES), "k")
    assert used.globals == ("counter", "$str")
    assert used.literals == {"$str"}
    assert used.constants == ("factor",)
    assert used.names >= {"k", "vprintf", "counter", "$str", "factor"}
    assert "unused" not in used.names


@pytest.mark.parametrize("make", [slice_kernel, persist_kernel])
def test_variables_are_the_originals(make: Callable[[Module, str, Mapping[str, int]], Module]) -> None:
    made = make(module_of(BODY, VARIABLES), "k", {"counter": 0x7F00_0000_1000})
    text = format_module(made)
    assert parse(text) == made
    assert [variable.name for variable in made.variables if variable.name[:4] != "fgv_"] == ["$str", "factor"]
    assert "mov.u64 %fgv_v0, 139637976731648;\n" in text
    assert "@%p1 atom.global.add.u32 %r1, [%fgv_v0+4], %r2;" in text
    assert ".const .align 4 .u32 factor;" in text  # filled from the original
    assert ".global .align 1 .b8 $str[3] = {104, 105, 0};" in text


def test_a_box_is_an_addition() -> None:
    made = slice_kernel(module_of(BODY, VARIABLES, ".maxntid 128, 1, 1"), "k", {"counter": 4096})
    [entry] = [function for function in made.functions if function.is_entry]
    text = format_module(made)
    assert [parameter.name for parameter in entry.parameters] == ["out", "fgv_launch"]
    assert ".param .align 8 .b8 fgv_launch[24]" in text
    assert ".maxntid 128, 1, 1" in text
    assert "mov.u32 %r1, %fgv_ctaid_x;" in text
    assert "mov.u32 %r2, %fgv_nctaid_y;" in text
    assert text.count("%ctaid") == 3  # one for each axis
    assert "%nctaid" not in text
    assert "bar" not in text


def test_a_persistent_kernel_loops() -> None:
    text = format_module(persist_kernel(module_of("bar.sync 1, 64; @%p1 ret; exit;"), "k", {}))
    assert "@%p1 bra fgv_done;" in text
    assert "bar.sync 1, 64;" in text  # as many threads as it says
    assert "ret;" not in text
    assert text.count("exit;") == 1  # of those without a number
    assert text.index("bar.sync 1, 64;") < text.index("fgv_done:") < text.index("bra.uni fgv_next;")


def test_blocks_look_at_the_split_at_each_turn() -> None:
    text = format_module(persist_kernel(module_of("mov.u32 %r1, %smid; ret;"), "k", {}))
    body = text.index("mov.u32 %r1, %smid;")
    turn = text[text.index("fgv_next:") : body]
    assert f"[fgv_launch+{PersistentDescriptor.MOST_EACH}]" in turn
    assert f"[fgv_launch+{PersistentDescriptor.SPLIT}]" in turn
    for once in ("%smid", "ld.volatile.global.u32 %fgv_first, [%fgv_split_word];"):
        assert turn.count(once) == text[:body].count(once) == 1
    assert turn.count("atom.global.cas.b32") == 2  # to enter, to leave
    assert turn.index("%smid") < turn.index("fgv_take:") < turn.index("atom.global.add.u64 %fgv_number")
    assert f".b64 fgv_state[{PersistentState.SIZE // 8}];" in text


def test_without_a_split_nothing_is_counted() -> None:
    """What stands between the loads of counter and limit and the next number, where most_each or the word's address is 0."""
    lines = format_module(persist_kernel(module_of("ret;"), "k", {})).splitlines()
    loads = [number for number, line in enumerate(lines) if "ld.volatile" in line]
    assert ["u64" in lines[number] for number in loads] == [
        True,
        True,
        False,
        False,
        False,
    ]  # behind two the word, and counts
    between = [line.split() for line in lines[loads[1] + 1 : loads[2]]]
    look = ["ld.param", "setp.eq", "@%fgv_given"]
    assert [line[0].removesuffix(".u32").removesuffix(".u64") for line in between] == look * 2
    assert between[2][1:] == between[5][1:] == ["bra", "fgv_take;"]


def test_what_split_keeps_has_a_place_of_its_own() -> None:
    assert NR_COUNTS == 1024
    assert index.SIZE_BYTES + 12 <= HOME_BYTES < 4 * index.BLOCK_WORDS


IS_ZERO = "setp.eq.u32 %p1, %r1, 0;"
VARYING = "mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0;"
SAME = "ld.param.u64 %rd1, [out]; mov.u32 %r1, %ctaid.x; cvt.u64.u32 %rd2, %r1; setp.eq.u64 %p1, %rd1, %rd2;"


@pytest.mark.parametrize(
    "body",
    [
        f"{VARYING} @%p1 bra L; mov.u32 %r2, 0; L: bar.sync 0; @%p1 ret; ret;",  # together again at L
        f"{SAME} @%p1 ret; bar.sync 0; ret;",
        f"{SAME} @%p1 bra L; bar.sync 0; L: ret;",
        f"{SAME} L: bar.sync 0; @%p1 bra L; ret;",
        f"mov.u32 %r2, 0; {SAME} L: bar.sync 0; add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 7; @%p2 bra L; ret;",
        f"{VARYING} bar.sync 0; @%p1 trap; bar.sync 0; ret;",
        f"{VARYING} @%p1 bra L; shfl.sync.bfly.b32 %r1, %r2, 1, 31, -1; L: bar.sync 0; ret;",  # as the kernel has it
        f"ld.volatile.shared.u32 %r1, [%rd1]; {IS_ZERO} bar.sync 0; @%p1 ret; ret;",
        f"{SAME} ld.shared.u32 %r1, [%rd1]; {IS_ZERO} @%p1 ret; bar.sync 0; ret;",
    ],
)
def test_runs_persistently(body: str) -> None:
    text = format_module(persist_kernel(module_of(body), "k", {}))
    assert "bar.sync 0;" in text
    assert "ret;" not in text


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (f"{VARYING} @%p1 ret; shfl.sync.bfly.b32 %r1, %r2, 1, 31, -1; ret;", Whole.EARLY_RETURNS),
        (f"{VARYING} @%p1 ret; bar.sync 1; ret;", Whole.EARLY_RETURNS),
        (f"{VARYING} @%p1 ret; bar.sync 1, 32; ret;", Whole.EARLY_RETURNS),
        (f"{VARYING} @%p1 ret; bar.red.popc.u32 %r1, 0, %p2; ret;", Whole.EARLY_RETURNS),
        (f"{VARYING} @%p1 bra L; bar.sync 0; L: ret;", Whole.EARLY_RETURNS),
        (f"{VARYING} L: bar.sync 0; @%p1 bra L; ret;", Whole.EARLY_RETURNS),
        (
            f"{VARYING} @%p1 bra L; mov.u32 %r3, 1; L: setp.eq.u32 %p2, %r3, 0; @%p2 ret; bar.sync 0; ret;",
            Whole.EARLY_RETURNS,
        ),
        (f"{VARYING} @%p1 mov.u32 %r3, 1; setp.eq.u32 %p2, %r3, 0; @%p2 ret; bar.sync 0; ret;", Whole.EARLY_RETURNS),
        (
            f"mov.u32 %r2, 0; {VARYING} L: add.u32 %r2, %r2, 1; @%p1 bra L; setp.lt.u32 %p2, %r2, 7; @%p2 ret; bar.sync 0; ret;",
            Whole.EARLY_RETURNS,
        ),
        (f"{SAME} ld.volatile.shared.u32 %r1, [%rd1]; {IS_ZERO} @%p1 ret; bar.sync 0; ret;", Whole.EARLY_RETURNS),
        (f"{SAME} ld.local.u32 %r1, [%rd1]; {IS_ZERO} @%p1 ret; bar.sync 0; ret;", Whole.EARLY_RETURNS),
        (
            f"{SAME} cvta.local.u64 %rd1, %rd1; ld.u32 %r1, [%rd1]; {IS_ZERO} @%p1 ret; bar.sync 0; ret;",
            Whole.EARLY_RETURNS,
        ),
        (f"{SAME} atom.global.add.u32 %r1, [%rd1], 1; {IS_ZERO} @%p1 ret; bar.sync 0; ret;", Whole.EARLY_RETURNS),
        ("mov.u32 %r1, %laneid; T: .branchtargets A, B; brx.idx %r1, T; A: bar.sync 0; B: ret;", Whole.EARLY_RETURNS),
        ("@%p9 ret; bar.sync 0; ret;", Whole.EARLY_RETURNS),  # nobody sets it
        ("mbarrier.init.shared.b64 [%r1], 1; ret;", Whole.ASYNCHRONOUS_UNITS),
        ("cp.async.bulk.commit_group; ret;", Whole.ASYNCHRONOUS_UNITS),
    ],
)
def test_only_boxes(body: str, wanted: Whole) -> None:
    assert persistent_reason(body) == wanted


def test_copies_are_waited_for() -> None:
    text = format_module(persist_kernel(module_of("cp.async.ca.shared.global [%r1], [%rd1], 4; ret;"), "k", {}))
    assert text.index("fgv_done:") < text.index("cp.async.wait_all;") < text.index("bar.sync 0;\n\tbra.uni fgv_next;")


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("mov.u32 %r1, %envreg2; ret;", Whole.GRID_SYNC),
        ("mov.u32 %r1, %cluster_ctarank; ret;", Whole.CLUSTERS),
        ("barrier.cluster.arrive; ret;", Whole.CLUSTERS),
        ("mov.u64 %rd1, %gridid; ret;", Whole.SPECIAL_REGISTER),
        ("mov.v4.u32 {%r1, %r2, %r3, %r4}, %ctaid; ret;", Whole.SPECIAL_REGISTER),
        ("tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [picture, {%f1, %f2}]; ret;", Whole.TEXTURE_REFERENCE),
        ("call launch_it, (); ret;", Whole.UNKNOWN_FUNCTION),
        ("call cudaLaunchDeviceV2, (); ret;", Whole.DYNAMIC_PARALLELISM),
        ("mov.u64 %rd1, k; ret;", Whole.DYNAMIC_PARALLELISM),
        ("mov.u64 %rd1, cudaLaunchDeviceV2; ret;", Whole.INDIRECT_CALLS),
        (".reg .b32 %fgv_a; ret;", Whole.NOT_UNDERSTOOD),
        (".reg .b32 picture; ret;", Whole.NOT_UNDERSTOOD),
    ],
)
def test_neither(body: str, wanted: Whole) -> None:
    before = ".global .texref picture;\n.extern .func launch_it ();\n.extern .func cudaLaunchDeviceV2 ();\n"
    assert reason(body, before) == wanted


def test_no_kernel_of_that_name() -> None:
    with pytest.raises(RunsWholeError) as raised:
        slice_kernel(module_of("ret;"), "other", {})
    assert raised.value.reason == Whole.NO_PTX
    assert reason("ret;", tuning=".reqnctapercluster 2, 1, 1") == Whole.CLUSTERS


@pytest.mark.parametrize(
    ("loop", "waits"),
    [
        ("ld.volatile.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0;", True),
        ("ld.acquire.gpu.u32 %r1, [%rd1]; and.b32 %r2, %r1, 3; setp.eq.u32 %p1, %r2, 0;", True),
        ("ld.global.u32 %r1, [%rd1]; membar.gl; setp.eq.u32 %p1, %r1, 0;", True),
        ("atom.global.exch.b32 %r1, [%rd1], 1; setp.ne.u32 %p1, %r1, 0;", True),
        ("atom.global.or.b32 %r1, [%rd1], 0; setp.ne.u32 %p1, %r1, 0;", True),
        ("atom.global.cas.b32 %r1, [%rd1], 0, 1; setp.ne.u32 %p1, %r1, 0;", True),
        ("ld.volatile.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r3, 0;", False),
        ("ld.volatile.shared.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0;", False),
        ("ld.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0;", False),
        ("atom.global.add.u32 %r1, [%rd1], 1; setp.lt.u32 %p1, %r1, 100;", False),
        ("mov.u32 %r2, %r1; atom.global.cas.b32 %r1, [%rd1], %r2, %r3; setp.ne.u32 %p1, %r1, %r2;", False),
    ],
)
def test_loops_that_wait(loop: str, waits: bool) -> None:
    body = f"L: {loop} @%p1 bra L; ret;"
    if waits:
        assert reason(body) == Whole.WAITS_FOR_BLOCKS
    else:
        slice_kernel(module_of(body), "k", {})


@pytest.mark.parametrize("sample", sorted(path.name for path in SAMPLES.glob("*.ptx")))
def test_what_compilers_write(sample: str) -> None:
    """Each kernel has a variant that is PTX, or a reason."""
    module = parse((SAMPLES / sample).read_text())
    for function in module.functions:
        for make in (slice_kernel, persist_kernel):
            if not function.is_entry:
                continue
            try:
                made = make(module, function.name, {})
            except RunsWholeError as error:
                assert error.reason not in (Whole.NO_PTX, Whole.NOT_UNDERSTOOD), error
            else:
                assert parse(format_module(made)) == made
