"""The rule of a vGPU's limit: a share of the GPU that it is not to exceed, however idle the GPU is.

It is GCRA, the rate control of ATM cells, with one integer of state, `limited_until_ns`. Each charge moves it on by the time in which a vGPU
at its limit uses that much. A vGPU may run while it is not in the future. It never lags by more than `depth_ns`, in which the limit comes to
one slice. So time asleep saves no more than that.

Good when: kernels are short beside a second, or can be taken off the device. Bad when: neither holds. The share is right over many kernels
and not within one.
Wrong when: charges are tiny. A division's rest is dropped: up to 1 ns of the word, less than 1 ns of use, at each charge.
"""

PERMILLE = 1000


def has_limit(limit_permille: int) -> bool:
    """1000 is no limit, and 0, which a page of zeroes says, is none too."""
    return 0 < limit_permille < PERMILLE


class Allowance:
    """One vGPU's limit l, in permille from 1 to 999, and the length s of its slices. Times in ns on any scale that begins at 0 or above.

    The bound: let it obey, that is stop when `left_ns` is 0 and go on from `back_ns` on. In any window of length T its charges come to at most
    `l * T + s + o`, where o is the most that what cannot be stopped exceeds `left_ns` by. (Divisions are taken as exact; see the head.)

    Proof: a charge u moves the word by u/l, and only charges and the cut at `now - depth` move it, both forwards. Let a window begin at b, and
    let e be the last charge in it. At the first charge the cut lifts the word to `b - s/l` or above. By the last one it is at most `e + o/l`,
    since it was not beyond e but for what that one exceeded. So the sum of u/l is at most `e - b + s/l + o/l`: multiply by l.

    Likewise from below: one that always has work waits until the word lags by `q * (1 - l) / l`, q being the quota, and no longer. That is less
    than the depth for q <= s, so nothing is cut, and in a window it gets at least `l * T - q * (1 - l) - o`. This takes long use to be charged
    as it goes, as workers do; what is charged at its end alone has lost to the cut what it exceeded `left_ns` by.
    """

    def __init__(self, limit_permille: int, slice_ns: int) -> None:
        if not has_limit(limit_permille):
            raise ValueError(f"a limit of {limit_permille} permille is none")
        self.limited_until_ns = 0
        self.depth_ns = slice_ns * PERMILLE // limit_permille
        self._limit = limit_permille

    def charge(self, used_ns: int, now_ns: int) -> None:
        """It used the GPU, or kept it from others, for so long more, up to now."""
        self.limited_until_ns = self._word(now_ns) + used_ns * PERMILLE // self._limit

    def left_ns(self, now_ns: int) -> int:
        """How long it may still run at full speed."""
        lag_ns = now_ns - self._word(now_ns)
        return max(0, lag_ns) * self._limit // (PERMILLE - self._limit)

    def back_ns(self, quota_ns: int) -> int:
        """When one that was stopped may run again: for `quota_ns` at full speed then. One that was not stopped need not wait for that."""
        return self.limited_until_ns + quota_ns * (PERMILLE - self._limit) // self._limit

    def _word(self, now_ns: int) -> int:
        """The word, cut."""
        return max(self.limited_until_ns, now_ns - self.depth_ns, 0)
