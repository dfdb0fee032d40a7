"""
Random kernels with barriers in all kinds of places, without races: whatever runs them right computes the same.

A thread writes one slot of shared memory, its own, and reads those of others only between two barriers behind that. Conditions are the same for
all threads, or not; where a barrier stands behind one that is not, there is one behind its opposite, too. Threads that end early have written
their results before. PTX leaves open what barriers of that kind do unless all threads of a warp come by, and a GPU hangs: kernels for one are
made without.
"""

from __future__ import annotations

import random

NR_VALUES = 6
_OPERATIONS = ("add.u32", "sub.u32", "mul.lo.u32", "xor.b32", "and.b32", "or.b32", "min.u32", "max.s32")


class RandomKernel:
    """`text` is the PTX of an entry that takes (u64 out, u64 in, u32 number)."""

    def __init__(self, name: str, seed: int, *, may_part: bool = True) -> None:
        """`may_part`: threads may wait in different places, or end before others do."""
        self._random = random.Random(seed)
        self._nr_names = 0
        self._lines: list[str] = []
        self._counters = ["%number", "%block"]
        self._may_part = self._random.random() < 0.4 and may_part
        for _ in range(self._random.randint(3, 7)):
            self._statement(2, may_wait=True, is_same=True)
        body = "\n".join(self._lines)
        self.text = f"""
.visible .entry {name}(.param .u64 out, .param .u64 in, .param .u32 number) {{
  .reg .b32 %v<{NR_VALUES}>; .reg .b32 %number, %block, %slot, %index, %threads, %room, %tmp<400>; .reg .b32 %c<200>;
  .reg .b64 %out, %in, %walk, %wide; .reg .pred %p<200>;
  .shared .align 4 .b8 room[4096];
  .local .align 8 .b8 depot[32];
  ld.param.u64 %out, [out]; ld.param.u64 %in, [in]; ld.param.u32 %number, [number];
  cvta.to.global.u64 %out, %out; cvta.to.global.u64 %in, %in;
  mov.u32 %block, %ctaid.x;
  mov.u32 %tmp0, %ntid.x; mov.u32 %tmp1, %ntid.y; mov.u32 %tmp2, %ntid.z;
  mov.u32 %tmp3, %tid.x; mov.u32 %tmp4, %tid.y; mov.u32 %tmp5, %tid.z;
  mad.lo.u32 %tmp6, %tmp5, %tmp1, %tmp4; mad.lo.u32 %index, %tmp6, %tmp0, %tmp3;
  mul.lo.u32 %tmp7, %tmp0, %tmp1; mul.lo.u32 %threads, %tmp7, %tmp2;
  mov.u32 %room, room; mad.lo.u32 %slot, %index, 4, %room;
  mov.u32 %tmp8, 0; st.shared.u32 [%slot], %tmp8; st.local.u32 [depot+8], %index; st.local.u32 [depot+12], %block;
  mul.wide.u32 %wide, %index, 4; add.u64 %walk, %in, %wide;
  {self._initial_values()}
{body}
  bra.uni finish;
finish:
  {self._results()}
  ret;
}}
"""

    def _initial_values(self) -> str:
        return " ".join(f"mad.lo.u32 %v{i}, %index, {2 * i + 3}, {i * 77};" for i in range(NR_VALUES))

    def _results(self) -> str:
        lines = [
            "mad.lo.u32 %tmp9, %block, %threads, %index; mul.wide.u32 %wide, %tmp9, 4; add.u64 %wide, %out, %wide;"
        ]
        lines.append("mov.u32 %tmp10, 0;")
        lines += [f"mad.lo.u32 %tmp10, %tmp10, 31, %v{i};" for i in range(NR_VALUES)]
        lines.append("st.global.u32 [%wide], %tmp10;")
        return " ".join(lines)

    def _fresh(self) -> int:
        self._nr_names += 1
        return self._nr_names + 10

    def _emit(self, text: str) -> None:
        self._lines.append(f"  {text}")

    def _value(self) -> str:
        return f"%v{self._random.randrange(NR_VALUES)}"

    def _statement(self, depth: int, *, may_wait: bool, is_same: bool) -> None:
        """`may_wait`: all threads come by here, or as many barriers stand on the other way. `is_same`: all do so equally often."""
        choices = [self._compute, self._compute, self._guarded, self._local, self._load]
        if depth:
            choices += [lambda: self._apart(depth), lambda: self._uneven_loop(depth)]
        if may_wait:
            choices += [self._exchange, self._exchange, self._carry]
        if may_wait and depth and self._may_part:
            choices.append(lambda: self._apart_waiting(depth))
        if may_wait and is_same and depth:
            choices += [lambda: self._even_loop(depth), lambda: self._choice(depth)] * 2
        if may_wait and is_same:
            choices += [self._early_end, self._walk]
        self._random.choice(choices)()

    def _body(self, depth: int, *, may_wait: bool, is_same: bool) -> None:
        for _ in range(self._random.randint(1, 3)):
            self._statement(depth - 1, may_wait=may_wait, is_same=is_same)

    def _compute(self) -> None:
        other = self._random.choice(
            [self._value(), str(self._random.randrange(1000)), self._random.choice(self._counters)]
        )
        self._emit(f"{self._random.choice(_OPERATIONS)} {self._value()}, {self._value()}, {other};")

    def _varying(self) -> str:
        """A predicate that depends on the thread."""
        p, t = f"%p{self._fresh()}", f"%tmp{self._fresh()}"
        self._emit(f"and.b32 {t}, {self._random.choice([self._value(), '%index'])}, {self._random.choice([1, 3, 8])};")
        self._emit(f"setp.{self._random.choice(['eq', 'gt'])}.u32 {p}, {t}, {self._random.choice([0, 1])};")
        return p

    def _even(self) -> str:
        """One that does not."""
        p, t = f"%p{self._fresh()}", f"%tmp{self._fresh()}"
        self._emit(f"and.b32 {t}, {self._random.choice(self._counters)}, {self._random.choice([1, 2, 3])};")
        self._emit(f"setp.ne.u32 {p}, {t}, 0;")
        return p

    def _guarded(self) -> None:
        p = self._varying()
        self._emit(f"@{self._random.choice(['', '!'])}{p} add.u32 {self._value()}, {self._value()}, {self._value()};")

    def _local(self) -> None:
        t = f"%tmp{self._fresh()}"
        at = self._random.choice([8, 12, 16])
        self._emit(f"ld.local.u32 {t}, [depot+{at if at < 16 else 8}]; xor.b32 {self._value()}, {self._value()}, {t};")
        self._emit(f"st.local.u32 [depot+{at if at < 16 else 12}], {self._value()};")

    def _load(self) -> None:
        t = f"%tmp{self._fresh()}"
        self._emit(f"ld.global.u32 {t}, [%walk]; add.u32 {self._value()}, {self._value()}, {t};")

    def _walk(self) -> None:
        self._emit(f"add.s64 %walk, %walk, {4 * self._random.randrange(16)};")

    def _barrier(self) -> None:
        text = self._random.choice(["bar.sync 0;", "barrier.sync 0;", "barrier.sync.aligned 0;"])
        p = self._varying() if self._may_part and self._random.random() < 0.3 else ""
        if p:
            self._emit(f"@{p} {text}")
            self._emit(f"@!{p} bar.sync 0;")
        else:
            self._emit(text)

    def _exchange(self) -> None:
        t = [f"%tmp{self._fresh()}" for _ in range(4)]
        self._emit(f"st.shared.u32 [%slot], {self._value()};")
        self._emit("bar.sync 0;")
        self._emit(f"add.u32 {t[0]}, %index, {self._random.randrange(1, 40)}; rem.u32 {t[1]}, {t[0]}, %threads;")
        self._emit(f"mad.lo.u32 {t[2]}, {t[1]}, 4, %room; ld.shared.u32 {t[3]}, [{t[2]}];")
        self._emit(f"add.u32 {self._value()}, {self._value()}, {t[3]};")
        self._emit("bar.sync 0;")

    def _carry(self) -> None:
        self._emit(f"add.cc.u32 {self._value()}, {self._value()}, {self._value()};")
        self._barrier()
        self._emit(f"addc.u32 {self._value()}, {self._value()}, {self._value()};")

    def _apart(self, depth: int) -> None:
        p, end = self._varying(), f"end{self._fresh()}"
        self._emit(f"@{p} bra {end};")
        self._body(depth, may_wait=False, is_same=False)
        self._lines.append(f"{end}:")

    def _apart_waiting(self, depth: int) -> None:
        """Both ways wait equally often: once each, around an exchange of their own."""
        p, other, end = self._varying(), f"other{self._fresh()}", f"end{self._fresh()}"
        self._emit(f"@{p} bra {other};")
        self._statement(depth - 1, may_wait=False, is_same=False)
        self._exchange()
        self._emit(f"bra {end};")
        self._lines.append(f"{other}:")
        self._exchange()
        self._statement(depth - 1, may_wait=False, is_same=False)
        self._lines.append(f"{end}:")

    def _uneven_loop(self, depth: int) -> None:
        c, p, start = f"%c{self._fresh()}", f"%p{self._fresh()}", f"start{self._fresh()}"
        self._emit(f"and.b32 {c}, {self._value()}, 3;")
        self._lines.append(f"{start}:")
        self._body(depth, may_wait=False, is_same=False)
        self._emit(f"setp.ne.u32 {p}, {c}, 0; sub.u32 {c}, {c}, 1;")
        self._emit(f"@{p} bra {start};")

    def _even_loop(self, depth: int) -> None:
        c, p, start = f"%c{self._fresh()}", f"%p{self._fresh()}", f"start{self._fresh()}"
        self._emit(f"mov.u32 {c}, 0;")
        self._lines.append(f"{start}:")
        self._counters.append(c)
        self._body(depth, may_wait=True, is_same=True)
        if self._random.random() < 0.5:
            self._walk()
        self._counters.remove(c)
        self._emit(f"add.u32 {c}, {c}, 1; setp.lt.u32 {p}, {c}, {self._random.choice(['2', '3', '%number'])};")
        self._emit(f"@{p} bra {start};")

    def _choice(self, depth: int) -> None:
        p, other, end = self._even(), f"other{self._fresh()}", f"end{self._fresh()}"
        self._emit(f"@{p} bra {other};")
        self._body(depth, may_wait=True, is_same=True)
        self._emit(f"bra.uni {end};")
        self._lines.append(f"{other}:")
        self._body(depth, may_wait=True, is_same=True)
        self._lines.append(f"{end}:")

    def _early_end(self) -> None:
        if not self._may_part or self._random.random() < 0.5:
            return
        p, t = f"%p{self._fresh()}", f"%tmp{self._fresh()}"
        self._emit(f"rem.u32 {t}, %index, {self._random.choice([3, 5, 11])}; setp.eq.u32 {p}, {t}, 1;")
        self._emit(f"@{p} bra finish;")
