"""The functions of grant.c and nudge.c that move the grant, as tables: a step is one access to the page, and what it finds says which is next.

A step names what it may find and the label it then goes to. Labels stand within their function; "return", with or without a word behind it,
goes back to the caller. Which C function a table follows is its name; where it leaves something out, it says why. Left out everywhere:

* what a turn lasts and costs, since any turn may be long or short here, and the policy, since any vGPU that waits may be chosen;
* `running` and `interactive`, since no hand-over asks for them;
* the daemon's bell and the booster's, since the daemon does what it does at any moment here;
* `fgw_grant_alert_next`, since whoever sleeps here may wake at any moment by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FAIR, TIMED, FREE = "fair", "timed", "free"


@dataclass(frozen=True)
class Step:
    """`op` is one of engine.OPS. `to` gives the next label for each outcome; an outcome is found by the words that it has."""

    op: str
    to: Mapping[str, str]
    set: str = "users"
    who: str = "own"
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Call:
    """All steps of another function. `to` gives the next label for what it returns.

    `who` says whose vGPU it is about; `flags` go to all its steps.
    """

    function: str
    to: Mapping[str, str]
    who: str = "own"
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Alternative:
    """What a process may do next for reasons that are not on the page. `needs` names what a setting must allow for it."""

    to: str
    kind: str
    needs: str = ""


@dataclass(frozen=True)
class Choice:
    alternatives: Mapping[str, Alternative]


Node = Step | Call | Choice


@dataclass(frozen=True)
class Function:
    """`word` is where its copy of the grant word is: a second place for who calls functions that have one, None for who is handed one."""

    name: str
    steps: Mapping[str, Node]
    word: int | None = 0


def _then(label: str) -> dict[str, str]:
    return {"else": label}


def load_grant(**to: str) -> dict[str, str]:
    """Outcomes by keyword, `mine_open` for "mine open"; `rest` for all others."""
    return {("else" if name == "rest" else name.replace("_", " ")): label for name, label in to.items()}


PASS = Function(
    "fgw_grant_pass",
    {
        "look": Step("load grant", load_grant(free="choose", open="return", closed="users")),
        "users": Step("has users", {"some": "return", "none": "choose"}, who="holder"),
        "choose": Step("choose", {"none free": "return", "else": "hand on"}),
        "hand on": Step("hand on", {"given": "ring", "freed": "look", "failed": "look"}),
        "ring": Step("ring", _then("used")),
        "used": Step("has users", {"some": "look", "none": "wanted"}, who="holder"),
        "wanted": Step("waits", {"some": "look", "none": "close"}, who="holder"),
        "close": Step("close", _then("look")),
    },
)

DROP = Function(
    "drop",
    {
        "look": Step("load grant", load_grant(mine_open="users", rest="pass"), who="subject"),
        "users": Step("has users", {"some": "pass", "none": "waits"}, who="subject"),
        "waits": Step("waits", {"some": "pass", "none": "close"}, who="subject"),
        "close": Step("close", _then("pass")),
        "pass": Call("fgw_grant_pass", _then("return")),
    },
)

TRY_ENTER = Function(
    "try_enter",
    {
        "look": Step("load grant", load_grant(free="anybody", rest="add")),
        "anybody": Step("anybody waits", {"some": "add", "none": "add first"}),
        "add first": Step("add", _then("take")),
        "take": Step("take", {"done": "return in", "failed": "add"}),
        "add": Step("add", _then("look again")),
        "look again": Step("load grant", load_grant(mine_open="return in", rest="remove")),
        "remove": Step("remove", _then("pass")),
        "pass": Call("fgw_grant_pass", _then("return out")),
    },
)

ENTER = Function(
    "fgw_grant_enter",
    {
        "try": Call("try_enter", {"in": "entered", "out": "if waiting"}),
        "if waiting": Step("if waiting", {"yes": "pass", "no": "wait"}),
        "wait": Step("add", _then("pass"), set="waiting"),
        "pass": Call("fgw_grant_pass", _then("look")),
        "look": Step("load grant", load_grant(mine_open="try again", rest="return out")),
        "try again": Call("try_enter", {"in": "entered", "out": "return out"}),
        "entered": Step("entered", {"waited": "wait no more", "else": "return in"}),
        "wait no more": Step("remove", _then("return in"), set="waiting"),
    },
)

CLOSE = Function(
    "fgw_grant_close",
    {
        "look": Step("load grant", load_grant(mine_open="close", rest="return")),
        "close": Step("close", {"done": "return", "failed": "look"}),
    },
)

LEAVE = Function(
    "fgw_grant_leave",
    {
        "remove": Step("remove", _then("drop")),
        "drop": Call("drop", _then("return")),
    },
)

LEAVE_FOR_MORE = Function(
    "fgw_grant_leave",
    {
        "wait": Step("add", _then("leave"), set="waiting"),
        "leave": Call("leave", _then("return")),
    },
)

WAIT_CANCEL = Function(
    "fgw_grant_wait_cancel",
    {
        "remove": Step("remove", _then("drop"), set="waiting"),
        "drop": Call("drop", _then("return")),
    },
)

DETACH = Function(
    "fgw_grantee_detach",
    {
        "waiting": Step("remove", _then("users"), set="waiting"),
        "users": Step("remove", _then("drop")),
        "drop": Call("drop", _then("return")),
    },
)

PASS_OVER = Function(
    "pass_over",
    {
        "choose": Step("choose", {"one held": "hand on", "else": "return"}, flags=("passes over",)),
        "hand on": Step("hand on", {"given": "ring", "else": "return"}),
        "ring": Step("ring", _then("used")),
        "used": Step("has users", {"some": "return", "none": "wanted"}, who="holder"),
        "wanted": Step("waits", {"some": "return", "none": "close"}, who="holder"),
        "close": Step("close", _then("return")),
    },
    word=None,
)

CLEAR = Function(
    "fgw_grant_clear",
    {
        "waiting": Step("remove", _then("users"), set="waiting", who="slot"),
        "users": Step("remove", _then("drop"), who="slot"),
        "drop": Call("drop", _then("return"), who="slot"),
    },
)

REPAIR = Function(
    "fgw_control_repair",
    {
        "is member": Step("is member", {"yes": "clear", "no": "return"}, who="slot"),
        "clear": Call("fgw_grant_clear", _then("members"), who="slot"),
        "members": Step("remove", _then("return"), set="members", who="slot"),
    },
)

NUDGE = Function(
    "fgw_grant_nudge",
    {
        "look": Step("load grant", load_grant(free="pass", rest="age")),
        "age": Choice({"young": Alternative("pass", FAIR), "old": Alternative("ask daemon", TIMED)}),
        "ask daemon": Step("ask daemon", {"alive": "whose", "ended": "look for dead"}),
        "look for dead": Step("look for dead", {"dead": "repair", "none": "whose"}),
        "repair": Call("fgw_grant_clear", _then("look for dead"), who="slot"),
        "whose": Step("if word", load_grant(other_open="users", rest="pass")),
        "users": Step("has users", {"some": "pass", "none": "close"}, who="holder"),
        "close": Step("close", {"done": "users again", "failed": "pass"}),
        "users again": Step("has users", {"some": "pass", "none": "pass over"}, who="holder"),
        "pass over": Call("pass_over", _then("pass")),
        "pass": Call("fgw_grant_pass", _then("return")),
    },
    word=1,
)

EVICT = Function(
    "fgw_control_evict",
    {
        "look": Step("load grant", _then("pass over")),
        "pass over": Call("pass_over", _then("pass"), flags=("evicts",)),
        "pass": Call("fgw_grant_pass", _then("return")),
    },
)

WORKER = Function(
    "worker",
    {
        "gone": Step("gone", _then("attach")),
        "attach": Step("add", _then("out"), set="members"),
        "out": Choice({"enter": Alternative("bell", FREE), "end": Alternative("detach", FREE, "ends")}),
        "bell": Step("load bell", _then("enter")),
        "enter": Call("fgw_grant_enter", {"in": "in", "out": "sleep"}),
        "sleep": Step("sleep", {"asleep": "asleep", "awake": "waiting"}),
        "asleep": Step("asleep", _then("waiting")),
        "waiting": Choice(
            {
                "enter": Alternative("bell", FAIR),
                "nudge": Alternative("nudge", FAIR, "nudges"),
                "cancel": Alternative("cancel", FREE, "cancels"),
                "end": Alternative("detach", FREE, "ends"),
            }
        ),
        "nudge": Call("fgw_grant_nudge", _then("waiting")),
        "cancel": Call("fgw_grant_wait_cancel", _then("out")),
        "in": Step("load grant", load_grant(mine_open="open", rest="leaving")),
        "open": Choice(
            {
                "close": Alternative("close", FAIR),
                "leave": Alternative("leave", FAIR),
                "end": Alternative("detach", FREE, "ends"),
            }
        ),
        "close": Call("fgw_grant_close", _then("in")),
        "leaving": Choice(
            {
                "leave": Alternative("leave", FAIR),
                "leave for more": Alternative("leave for more", FAIR),
                "end": Alternative("detach", FREE, "ends"),
            }
        ),
        "leave": Call("leave", _then("if waiting")),
        "leave for more": Call("leave for more", _then("if waiting")),
        "if waiting": Step("if waiting", {"yes": "waiting", "no": "out"}),
        "detach": Call("fgw_grantee_detach", _then("gone")),
    },
)
"""What a worker does, as turn.c and rest.c call the functions above. The bell is loaded before each attempt to enter, and a worker that did
not get in sleeps. In C the first attempt has another behind it, as one that wakes by itself at once has here."""

DAEMON = Function(
    "daemon",
    {
        "idle": Choice({"repair": Alternative("learn", FAIR), "evict": Alternative("evict", FREE, "evictions")}),
        "learn": Step("learn", _then("repair")),
        "repair": Call("fgw_control_repair", _then("free"), who="slot"),
        "free": Call("fgw_control_repair", _then("repaired"), who="slot"),
        "repaired": Step("repaired", _then("idle")),
        "evict": Call("fgw_control_evict", _then("idle")),
    },
)
"""What the daemon does: it hears of a death at any later moment, repairs the slot, and again when it gives the slot back."""

FUNCTIONS: dict[str, Function] = {
    **{
        function.name: function
        for function in (
            PASS,
            DROP,
            TRY_ENTER,
            ENTER,
            CLOSE,
            WAIT_CANCEL,
            DETACH,
            PASS_OVER,
            CLEAR,
            REPAIR,
            NUDGE,
            EVICT,
        )
    },
    "leave": LEAVE,
    "leave for more": LEAVE_FOR_MORE,
    "worker": WORKER,
    "daemon": DAEMON,
}
