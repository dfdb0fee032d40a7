"""
Every instruction of the PTX manual is either compiled or refused by its name when the module is loaded; none is passed over in silence.

The two lists follow the manual's chapter on the instruction set (PTX 9.0). What needs a newer device than capability 8.0 may be refused; what
a program for compute_75 or compute_80 can contain is refused only where it says so here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from softgpu.compiler.base.errors import UnsupportedInstruction
from softgpu.compiler.command import llvm_text
from softgpu.compiler.text.registry import LOWERINGS
from tests.softgpu.compiler_harness import HEADER, compiled_quickly

COMPILED = """
add.s32 %r1, %r2, %r3
add.sat.s32 %r1, %r2, %r3
add.f16x2 %r1, %r2, %r3
add.u16x2 %r1, %r2, %r3
min.s16x2 %r1, %r2, %r3
max.relu.s16x2 %r1, %r2, %r3
sub.s64 %x5, %x6, %x7
mul.wide.u32 %x5, %r1, %r2
mul.hi.s64 %x5, %x6, %x7
mad.lo.s32 %r1, %r2, %r3, %r4
mad.hi.sat.s32 %r1, %r2, %r3, %r4
mul24.lo.s32 %r1, %r2, %r3
mad24.hi.u32 %r1, %r2, %r3, %r4
sad.u32 %r1, %r2, %r3, %r4
div.u32 %r1, %r2, %r3
rem.s64 %x5, %x6, %x7
abs.s32 %r1, %r2
neg.s64 %x5, %x6
min.u16 %h1, %h2, %h3
max.s32 %r1, %r2, %r3
popc.b64 %r1, %x5
clz.b32 %r1, %r2
bfind.shiftamt.u64 %r1, %x5
fns.b32 %r1, %r2, %r3, %r4
brev.b64 %x5, %x6
bfe.s32 %r1, %r2, %r3, %r4
bfi.b64 %x5, %x6, %x7, %r1, %r2
bmsk.wrap.b32 %r1, %r2, %r3
szext.clamp.s32 %r1, %r2, %r3
dp4a.u32.s32 %r1, %r2, %r3, %r4
dp2a.lo.s32.u32 %r1, %r2, %r3, %r4
add.cc.u32 %r1, %r2, %r3
addc.cc.u64 %x5, %x6, %x7
subc.u32 %r1, %r2, %r3
mad.lo.cc.u32 %r1, %r2, %r3, %r4
madc.hi.u64 %x5, %x6, %x7, %x8
testp.finite.f32 %p1, %f1
copysign.f64 %d1, %d2, %d3
add.rz.ftz.f32 %f1, %f2, %f3
sub.rn.f64 %d1, %d2, %d3
mul.sat.f32 %f1, %f2, %f3
fma.rm.f32 %f1, %f2, %f3, %f4
fma.rn.relu.f16 %h1, %h2, %h3, %h4
fma.rn.bf16x2 %r1, %r2, %r3, %r4
mad.rn.f32 %f1, %f2, %f3, %f4
div.full.f32 %f1, %f2, %f3
div.rp.f64 %d1, %d2, %d3
abs.ftz.f32 %f1, %f2
neg.bf16 %h1, %h2
min.NaN.f32 %f1, %f2, %f3
rcp.rn.f32 %f1, %f2
rcp.approx.ftz.f64 %d1, %d2
sqrt.approx.f32 %f1, %f2
rsqrt.approx.ftz.f64 %d1, %d2
sin.approx.f32 %f1, %f2
cos.approx.ftz.f32 %f1, %f2
lg2.approx.f32 %f1, %f2
ex2.approx.ftz.f16 %h1, %h2
tanh.approx.f32 %f1, %f2
set.gt.u32.f32 %r1, %f1, %f2
setp.lt.and.s32 %p1|%p2, %r1, %r2, %p3
selp.f64 %d1, %d2, %d3, %p1
slct.f32.s32 %f1, %f2, %f3, %r1
and.b64 %x5, %x6, %x7
or.pred %p1, %p2, %p3
xor.b16 %h1, %h2, %h3
not.pred %p1, %p2
cnot.b32 %r1, %r2
lop3.b32 %r1, %r2, %r3, %r4, 0x96
shf.l.clamp.b32 %r1, %r2, %r3, %r4
shl.b64 %x5, %x6, %r1
shr.s16 %h1, %h2, %r1
mov.b64 {%r1, %r2}, %x5
mov.u32 %r1, %tid.x
mov.u32 %r1, %laneid
mov.u32 %r1, %nsmid
mov.u64 %x5, %gridid
mov.u32 %r1, %lanemask_eq
mov.u32 %r1, %pm3
mov.u64 %x5, %pm2_64
mov.u32 %r1, %envreg7
mov.u64 %x5, %globaltimer
mov.u32 %r1, %globaltimer_hi
mov.u32 %r1, %clock_hi
mov.u32 %r1, %reserved_smem_offset_begin
mov.u32 %r1, %reserved_smem_offset_1
mov.u32 %r1, %total_smem_size
mov.u32 %r1, %aggr_smem_size
mov.u64 %x5, %current_graph_exec
mov.u32 %r1, %cluster_ctarank
mov.u32 %r1, %nclusterid.x
shfl.sync.bfly.b32 %r1|%p1, %r2, 1, 31, -1
prmt.b32.f4e %r1, %r2, %r3, %r4
tex.1d.v4.s32.s32 {%r1, %r2, %r3, %r4}, [%x5, {%r5}]
tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%x5, {%f1, %f2}]
tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}|%p1, [%x5, {%f1, %f2}]
tex.3d.v4.u32.f32 {%r1, %r2, %r3, %r4}, [%x5, {%f1, %f2, %f3, %f3}]
tex.a1d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%x5, {%r1, %f2}]
tex.a2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%x5, {%r1, %f2, %f3, %f3}], {%r1, %r2}
tex.cube.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%x5, {%f1, %f2, %f3, %f3}]
tex.level.acube.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%x5, {%r1, %f1, %f2, %f3}], %f4
tex.grad.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%x5, {%f1, %f2}], {%f1, %f2}, {%f3, %f4}
tld4.a.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%x5, {%f1, %f2}]
txq.width.b32 %r1, [%x5]
txq.level.height.b32 %r1, [%x5], %r2
suld.b.1d.b8.zero {%h1}, [%x5, {%r2}]
suld.b.3d.v4.b32.trap {%r1, %r2, %r3, %r4}, [%x5, {%r2, %r3, %r4, %r4}]
sust.b.a2d.cg.v2.b64.clamp [%x5, {%r1, %r2, %r3, %r3}], {%x6, %x7}
sured.b.min.2d.s64.zero [%x5, {%r2, %r3}], %x6
suq.depth.b32 %r1, [%x5]
ld.u8 %h1, [%x0]
ld.weak.global.u32 %r1, [%x0]
ld.global.ca.u32 %r1, [%x0]
ld.global.cv.u32 %r1, [%x0]
ld.global.lu.f32 %f1, [%x0]
ld.global.L1::evict_last.L2::128B.f32 %f1, [%x0]
ld.global.L2::cache_hint.v4.f32 {%f1, %f2, %f3, %f4}, [%x0], %x5
ld.relaxed.sys.global.u64 %x5, [%x0]
ld.acquire.cta.shared.u32 %r1, [cell]
ld.volatile.shared::cta.v2.u32 {%r1, %r2}, [cell]
ld.global.nc.L1::no_allocate.L2::256B.v2.u64 {%x5, %x6}, [%x0]
ld.global.cg.nc.u32 %r1, [%x0]
ldu.global.v4.u32 {%r1, %r2, %r3, %r4}, [%x0]
ld.mmio.relaxed.sys.global.u32 %r1, [%x0]
st.global.wt.u32 [%x0], %r1
st.global.cs.v2.f64 [%x0], {%d1, %d2}
st.release.gpu.global.u32 [%x0], %r1
st.global.L1::no_allocate.L2::cache_hint.u32 [%x0], %r1, %x5
st.volatile.shared.u8 [cell], %h1
prefetch.global.L2 [%x0]
prefetch.L1 [%x0]
prefetch.global.L2::evict_last [%x0]
prefetchu.L1 [%x0]
applypriority.global.L2::evict_normal [%x0], 128
discard.global.L2 [%x0], 128
createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %x5, 1.0
createpolicy.range.L2::evict_last.b64 %x5, [%x0], %r1, %r2
createpolicy.cvt.L2.b64 %x5, 0x10F0000000000000
isspacep.shared %p1, %x0
isspacep.shared::cta %p1, %x0
isspacep.local %p1, %x0
isspacep.const %p1, %x0
isspacep.global %p1, %x0
isspacep.param %p1, %x0
cvta.to.shared.u64 %x5, %x0
cvta.shared.u64 %x5, %x6
cvta.local.u64 %x5, %x6
cvta.const.u64 %x5, %x6
cvta.to.global.u64 %x5, %x6
cvta.param.u64 %x5, %x6
cvt.rni.s32.f32 %r1, %f1
cvt.rn.f16x2.f32 %r1, %f1, %f2
cvt.rn.relu.bf16x2.f32 %r1, %f1, %f2
cvt.rna.tf32.f32 %r1, %f1
cvt.sat.u8.s32 %h1, %r1
cp.async.ca.shared.global [cell], [%x0], 4
cp.async.cg.shared.global.L2::128B [cell], [%x0], 16
cp.async.ca.shared::cta.global.L2::cache_hint [cell], [%x0], 8, %x5
cp.async.ca.shared.global [cell], [%x0], 16, %r1
cp.async.commit_group
cp.async.wait_group 2
cp.async.wait_all
bra TARGET
bra.uni TARGET
call.uni called, ()
ret
ret.uni
exit
bar.sync 0
bar.sync 1, 64
bar.arrive 1, 64
bar.red.popc.u32 %r1, 1, 64, %p1
bar.red.and.pred %p1, 0, %p2
barrier.sync.aligned 1
barrier.cta.arrive.aligned 1, 64
barrier.cta.red.or.pred %p1, 1, %p2
bar.warp.sync -1
membar.cta
membar.gl
membar.sys
fence.proxy.tensormap::generic.acquire.gpu [%x0], 128
fence.sc.cta
fence.acq_rel.gpu
fence.acquire.sys
fence.proxy.alias
atom.global.add.u32 %r1, [%x0], %r2
atom.shared.cas.b64 %x5, [cell], %x6, %x7
atom.global.add.noftz.f16x2 %r1, [%x0], %r2
atom.global.L2::cache_hint.add.f32 %f1, [%x0], %f2, %x5
red.relaxed.gpu.global.add.f64 [%x0], %d1
red.global.L2::cache_hint.max.u64 [%x0], %x5, %x6
vote.sync.uni.pred %p1, %p2, -1
match.all.sync.b64 %r1|%p1, %x5, -1
activemask.b32 %r1
redux.sync.max.s32 %r1, %r2, -1
griddepcontrol.launch_dependents
griddepcontrol.wait
setmaxnreg.inc.sync.aligned.u32 64
alloca.u64 %x5, %x6, 16
stacksave.u64 %x5
stackrestore.u64 %x5
trap
brkpt
pmevent 7
nanosleep.u32 20
elect.sync %r1|%p1, -1
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [cell], [%x0], 16, [cell]
cp.async.bulk.commit_group
cp.async.bulk.prefetch.L2.global [%x0], 16
mbarrier.arrive.expect_tx.shared.b64 %x5, [cell], 16
mbarrier.complete_tx.shared::cta.b64 [cell], 16
mbarrier.arrive.shared::cluster.b64 _, [cell]
mbarrier.arrive.release.cta.shared::cta.b64 [cell]
mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [cell], 16
mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p1, [cell], %r1
cp.async.bulk.global.shared::cta.bulk_group [%x0], [cell], %r1
cp.async.bulk.wait_group.read 0
elect.sync _|%p1, %r1
wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%x0]
wmma.load.b.sync.aligned.col.m32n8k16.shared.u8 {%r1}, [cell], %r2
wmma.mma.sync.aligned.row.col.m8n8k4.f64.f64.f64.f64 {%d1, %d2}, {%d3}, {%d4}, {%d1, %d2}
wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%x0], {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}, %r1
mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2}, {%r3}, {%f1, %f2, %f3, %f4}
ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [cell]
stmatrix.sync.aligned.m8n8.x1.shared.b16 [cell], {%r1}
movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r2
vabsdiff4.u32.u32.u32.add %r1, %r2, %r3, %r4
vabsdiff2.s32.s32.s32 %r1, %r2, %r3, %r4
vadd.u32.u32.s32 %r1, %r2, %r3
vsub.s32.s32.s32.sat %r1, %r2, %r3
vabsdiff.u32.u32.u32 %r1, %r2, %r3
vmax.s32.s32.s32 %r1, %r2, %r3
vshr.s32.s32.u32.clamp %r1, %r2, %r3
vadd2.u32.u32.s32 %r1, %r2, %r3, %r4
vadd4.u32.u32.s32 %r1, %r2, %r3, %r4
vsub2.s32.u32.u32.sat %r1, %r2, %r3, %r4
vsub4.s32.u32.u32.sat %r1, %r2, %r3, %r4
vavrg2.s32.s32.s32 %r1, %r2, %r3, %r4
vavrg4.s32.s32.s32 %r1, %r2, %r3, %r4
vmin2.u32.u32.u32.add %r1, %r2, %r3, %r4
vmin4.u32.u32.u32.add %r1, %r2, %r3, %r4
vmax2.s32.s32.s32 %r1, %r2, %r3, %r4
vmax4.s32.s32.s32 %r1, %r2, %r3, %r4
vset2.s32.s32.gt %r1, %r2, %r3, %r4
vset4.s32.s32.gt %r1, %r2, %r3, %r4
vadd2.u32.s32.u32.sat %r1.h1, %r2.h03, %r3.h21, %r4
vset4.u32.s32.ne.add %r1.b3, %r2.b7654, %r3, %r4
vshl.u32.u32.u32.wrap.add %r1, %r2.b0, %r3.b1, %r4
vmad.s32.s32.s32.shr15.sat %r1, %r2.h0, -%r3.h1, %r4
vmin.s32.s32.s32.max %r1, %r2, %r3, %r4
vset.u32.u32.le %r1.h0, %r2, %r3, %r4
lop3.or.b32 %r1|%p1, %r2, %r3, %r4, 0x96, %p2
lop3.and.b32 _|%p1, %r2, %r3, %r4, 0x96, !%p2
atom.global.relaxed.gpu.add.v4.f32 {%f1, %f2, %f3, %f4}, [%x0], {%f3, %f4, %f1, %f2}
atom.add.noftz.v2.f16x2 {_, %r2}, [%x0], {%r1, %r2}
red.global.gpu.max.noftz.v4.bf16 [%x0], {%h1, %h2, %h3, %h4}
red.relaxed.gpu.global.add.noftz.v8.f16 [%x0], {%h1, %h2, %h3, %h4, %h1, %h2, %h3, %h4}
cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2
cvt.rn.f16x2.e5m2x2 %r1, %h1
cvt.pack.sat.u8.s32.b32 %r1, %r2, %r3, %r4
cvt.pack.sat.s16.s32 %r1, %r2, %r3
mbarrier.init.shared.b64 [cell], 32
mbarrier.inval.shared.b64 [cell]
mbarrier.arrive.shared.b64 %x5, [cell]
mbarrier.arrive.noComplete.shared.b64 %x5, [cell], 2
mbarrier.arrive_drop.shared::cta.b64 %x5, [cell]
mbarrier.test_wait.shared.b64 %p1, [cell], %x5
mbarrier.test_wait.parity.shared.b64 %p1, [cell], %r1
mbarrier.try_wait.shared::cta.b64 %p1, [cell], %x5, 1000
mbarrier.pending_count.b64 %r1, %x5
cp.async.mbarrier.arrive.shared.b64 [cell]
cp.async.mbarrier.arrive.noinc.shared.b64 [cell]
""".strip().splitlines()

REFUSED = """
mov.u32 %r1, %nosuchregister
add.rn.f32.bf16 %f1, %h1, %f2
sub.rz.sat.f32.f16 %f1, %h1, %f2
fma.rn.f32.f16 %f1, %h1, %h2, %f2
vset.u32.u32 %r1, %r2, %r3
vshr.u32.u32.u32 %r1, %r2, %r3
vadd.u64.u32.u32 %r1, %r2, %r3
mapa.shared::cluster.u32 %r1, %r2, %r3
getctarank.shared::cluster.u32 %r1, %r2
barrier.cluster.arrive
barrier.cluster.wait
st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%x0], %r1, [%x5]
st.bulk [cell], 128, 0
red.async.relaxed.cluster.global.mbarrier::complete_tx::bytes.shared::cluster.add.u32 [%x0], %r1, [%x5]
multimem.ld_reduce.global.add.u32 %r1, [%x0]
multimem.st.global.u32 [%x0], %r1
multimem.red.global.add.u32 [%x0], %r1
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [cell], [%x0], 16, [cell], %h1
cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.nothing [cell], [cell], 16, [cell]
cp.async.bulk
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%x0], [cell], 16
cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [cell], [%x0, {%r1}], [cell]
tensormap.replace.tile.rank.global.b1024.b32 [%x0], 1
tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [t, {%f1, %f2}]
tld4.r.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [t, {%f1, %f2}]
txq.width.b32 %r1, [t]
tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%x5, %x6, {%f1, %f2}]
tex.2dms.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%x5, {%r1, %r2, %r3, %r3}]
tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%x5, {%f1, %f2}], {%r1, %r2}, %f3
tex.2d.v2.f16x2.f32 {%r1, %r2}, [%x5, {%f1, %f2}]
tld4.r.cube.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%x5, {%f1, %f2, %f3, %f3}]
txq.filter_mode.b32 %r1, [%x5]
sust.p.1d.v4.b32.trap [%x5, {%r1}], {%r1, %r2, %r3, %r4}
sured.b.add.cube.u32.trap [%x5, {%r2, %r3, %r4, %r4}], %r1
istypep.texref %p1, %x0
suld.b.1d.b32.trap {%r1}, [s, {%r2}]
sust.b.1d.b32.trap [s, {%r2}], {%r1}
sured.b.add.1d.u32.trap [s, {%r2}], %r1
suq.width.b32 %r1, [s]
vote.ballot.b32 %r1, %p1
shfl.up.b32 %r1, %r2, 1, 0
mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2}, {%r3}, {%f1, %f2, %f3, %f4}, %r1, 0
wgmma.fence.sync.aligned
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1}, %x0, %x1, 1, 1, 1, 0, 0
wgmma.wait_group.sync.aligned 0
tcgen05.fence::before_thread_sync
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p1, %x0
atom.global.cas.b128 %x5, [%x0], %x6, %x7
atom.global.add.v2.f32 {%f1, %f2}, [%x0], %x6
atom.shared.add.v2.f32 {%f1, %f2}, [cell], {%f3, %f4}
atom.global.exch.v2.f32 {%f1, %f2}, [%x0], {%f3, %f4}
atom.global.add.v4.u32 {%r1, %r2, %r3, %r4}, [%x0], {%r1, %r2, %r3, %r4}
cvt.pack.u8.s32.b32 %r1, %r2, %r3, %r4
cvt.pack.sat.u8.s32 %r1, %r2, %r3
ld.global.sideways.u32 %r1, [%x0]
nosuchinstruction.u32 %r1
""".strip().splitlines()

BODY = """.func called () {{ ret; }}
.visible .entry k(.param .u64 out) {{
  .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<20>; .reg .b64 %x<20>; .reg .f32 %f<9>; .reg .f64 %d<9>;
  .shared .align 16 .b8 cell[16];
  ld.param.u64 %x0, [out];
  {instruction};
TARGET:
  ret;
}}
"""


def _text(instruction: str) -> str:
    return HEADER + BODY.format(instruction=instruction)


@pytest.mark.parametrize("instruction", COMPILED, ids=lambda text: text.split()[0])
def test_compiled(instruction: str) -> None:
    assert "define" in llvm_text(_text(instruction))


def test_llvm_takes_them_all(tmp_path: Path) -> None:
    kernels = [
        BODY.format(instruction=instruction)
        .replace(" k(", f" k{index}(")
        .replace("called ()", f"called{index} ()")
        .replace("called,", f"called{index},")
        for index, instruction in enumerate(COMPILED)
    ]
    module = compiled_quickly(HEADER + "".join(kernels), tmp_path / "all.so")
    assert len(module.kernels) == len(COMPILED)


@pytest.mark.parametrize("instruction", REFUSED, ids=lambda text: text.split()[0])
def test_refused_by_name(instruction: str) -> None:
    with pytest.raises(UnsupportedInstruction) as caught:
        llvm_text(_text(instruction))
    assert f"instruction '{instruction.split(maxsplit=1)[0]}'" in str(caught.value)


def test_every_opcode_we_lower_is_listed() -> None:
    listed = {instruction.split()[0].split(".")[0] for instruction in (*COMPILED, *REFUSED)}
    assert LOWERINGS.keys() - listed == {"brx"}  # it needs a list of labels
