"""What a vGPU may have: one type, read and checked here alone, wherever it was written.

It is written on command lines, in the configuration, in a domain's metadata and in requests on the control socket. What a field is called
there, how it is read and what is allowed stands once, at the field; options, keys and attributes are made from that. So a further field of an
entitlement is a field here, and whatever uses it.

An entitlement is passed on whole. A change is one with some fields replaced. One that exists is allowed.
"""

import argparse
import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from backend_host.errors import ConfigError
from backend_host.qos import QOS, read_qos
from backend_host.sizes import format_size, parse_size

MAX_WEIGHT = 10_000
MAX_QUOTA_BYTES = 1 << 50
_PERCENT = re.compile(r"[0-9]{1,3}(\.[0-9]0*)?")
_SPACE = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]{0,31})?")
WHOLE = 100.0
"""Percent: all of a GPU."""
FAIR, CRITICAL, BEST_EFFORT = CLASSES = ("fair", "critical", "best-effort")
"""In the order in which the control page numbers them."""

Changes = Mapping[str, Any]
"""New values, read, by the name of their field."""

T = TypeVar("T")


class EntitlementError(ConfigError):
    """Some of an entitlement is not allowed. The text names the field as its reader knows it, what was written, and what is allowed."""


@dataclass(frozen=True)
class Parameter:
    """How one field of an entitlement is written. `key` is its name in requests, metadata and configuration.

    `rule` says what is allowed. `read` makes the value of what was written, a number or a text, and raises ValueError, OverflowError or
    ConfigError for what is none. `is_for_life`: a vGPU keeps what it was made with.
    """

    key: str
    option: str
    metavar: str
    help: str
    rule: str
    read: Callable[[object], Any]
    is_allowed: Callable[[Any], bool]
    show: Callable[[Any], str] = str
    is_for_life: bool = False

    def parse(self, written: object) -> Any:
        """The value that was written. Raises EntitlementError."""
        try:
            value = self.read(written)
        except (ConfigError, ValueError, OverflowError):
            raise self._refusal(written) from None
        self.check(value, written)
        return value

    def check(self, value: object, written: object) -> None:
        """Raises EntitlementError for a value that is not allowed, and was written so."""
        if not self.is_allowed(value):
            raise self._refusal(written)

    def _refusal(self, written: object) -> EntitlementError:
        return EntitlementError(f"{self.rule}, not {written!r}")


def _read_weight(written: object) -> int:
    return int(str(written))


def _read_quota(written: object) -> int:
    """Nothing said is no size: a variable of a script that is not set takes nobody's quota away."""
    return parse_size(str(written))


def _show_quota(quota_bytes: int) -> str:
    return format_size(quota_bytes) if quota_bytes else "no limit"


def _read_percent(written: object) -> float:
    """Digits alone: an exponent may stand for any number of them, and come from anybody."""
    if _PERCENT.fullmatch(str(written)) is None:
        raise ValueError(written)
    return float(str(written))


def _show_percent(percent: float) -> str:
    return f"{percent:g} %"


_MOST = 50.0
"""Percent of the GPU out of turn, unless it is said."""


def _described(default: T, parameter: Parameter) -> T:
    return field(default=default, metadata={"parameter": parameter})


@dataclass(frozen=True)
class Entitlement:
    """What one vGPU may have. Raises EntitlementError for what none may."""

    weight: int = _described(
        1,
        Parameter(
            key="weight",
            option="--weight",
            metavar="W",
            help="its share is in proportion to this",
            rule=f"a weight is a whole number from 1 to {MAX_WEIGHT}",
            read=_read_weight,
            is_allowed=lambda weight: 1 <= weight <= MAX_WEIGHT,
        ),
    )
    quota_bytes: int = _described(
        0,
        Parameter(
            key="memory_bytes",
            option="--memory",
            metavar="SIZE",
            help="device memory it may use; 0 for no limit",
            rule=f"a memory quota is a size from 0, for none, to {MAX_QUOTA_BYTES >> 40}T",
            read=_read_quota,
            is_allowed=lambda quota_bytes: 0 <= quota_bytes <= MAX_QUOTA_BYTES,
            show=_show_quota,
        ),
    )
    """Bytes of device memory; 0: no quota."""
    gpu: str = _described(
        "",
        Parameter(
            key="gpu",
            option="--gpu",
            metavar="GPU",
            help="the Gpu it is on, as fairgv-host devices lists them: a number or the beginning of a UUID",
            rule="a Gpu is called by its number, or by the beginning of its UUID",
            read=str,
            is_allowed=lambda gpu: re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9-]{0,62})?", gpu) is not None,
            is_for_life=True,
        ),
    )
    """As it was asked for; nothing: whichever fits and is used least (scheduler/placement.py)."""
    request: float = _described(
        0.0,
        Parameter(
            key="request",
            option="--request",
            metavar="PERCENT",
            help="of the GPU that it gets at least while it has work; 0 for none",
            rule="a request is a percentage from 0, for none, to 100, with one decimal at most",
            read=_read_percent,
            is_allowed=lambda request: 0 <= request <= WHOLE,
            show=lambda request: _show_percent(request) if request else "",
        ),
    )
    """Percent of the GPU, in tenths; 0: none."""
    limit: float = _described(
        WHOLE,
        Parameter(
            key="limit",
            option="--limit",
            metavar="PERCENT",
            help="of the GPU that it uses at most, whether others want the rest or not; 100 for no limit",
            rule="a limit is a percentage from 0.1 to 100, for none, with one decimal at most",
            read=_read_percent,
            is_allowed=lambda limit: 0 < limit <= WHOLE,
            show=lambda limit: _show_percent(limit) if limit < WHOLE else "",
        ),
    )
    """Percent of the GPU, in tenths; 100: none."""
    vgpu_class: str = _described(
        FAIR,
        Parameter(
            key="class",
            option="--class",
            metavar="CLASS",
            help="fair (by weight), best-effort (what the critical one of its space leaves), critical (at once, and no slower than --qos)",
            rule=f"a class is one of {', '.join(CLASSES)}",
            read=str,
            is_allowed=lambda vgpu_class: vgpu_class in CLASSES,
            show=lambda vgpu_class: vgpu_class if vgpu_class != FAIR else "",
        ),
    )
    space: str = _described(
        "",
        Parameter(
            key="space",
            option="--space",
            metavar="NAME",
            help="vGPUs of one space use the GPU at the same time, and share faults (docs/space.md)",
            rule="a space is called by letters, digits, '-' and '_', at most 32, the first a letter or digit; a vGPU is in one",
            read=str,
            is_allowed=lambda space: _SPACE.fullmatch(space) is not None,
            is_for_life=True,
        ),
    )
    """Nothing: in none."""
    qos: str = _described(
        "",
        Parameter(
            key="qos",
            option="--qos",
            metavar="TARGET",
            help="how slow a request of a critical vGPU may get: 1.2 times as slow as alone, say, or a time, as 3ms or 500us",
            rule=f"a qos is {QOS}",
            read=read_qos,
            is_allowed=lambda qos: qos == "" or read_qos(qos) == qos,
        ),
    )
    """Nothing: no target. Else as `backend_host.qos.Target` reads it."""
    most: float = _described(
        _MOST,
        Parameter(
            key="most",
            option="--most",
            metavar="PERCENT",
            help="of the GPU over 10 s that a critical vGPU may take out of turn (default 50)",
            rule="most is a percentage from 0 to 100, with one decimal at most",
            read=_read_percent,
            is_allowed=lambda most: 0 <= most <= WHOLE,
            show=lambda most: _show_percent(most) if most != _MOST else "",
        ),
    )
    """Percent of the GPU, in tenths."""

    def __post_init__(self) -> None:
        for name, parameter in PARAMETERS.items():
            value = getattr(self, name)
            parameter.check(value, value)
        self._check_class()
        if self.request > self.limit:
            request, limit = PARAMETERS["request"], PARAMETERS["limit"]
            raise EntitlementError(
                f"{request.option} {_show_percent(self.request)} is above {limit.option} {_show_percent(self.limit)}: what a vGPU gets "
                "at least is no more than what it may use at most"
            )

    def _check_class(self) -> None:
        is_critical = self.vgpu_class == CRITICAL
        if is_critical and not self.qos:
            raise EntitlementError(f"--class critical needs a target: say --qos, {QOS}")
        if not is_critical and (self.qos or self.most != _MOST):
            option = "--qos" if self.qos else "--most"
            raise EntitlementError(
                f"{option} is for critical vGPUs, and this one is {self.vgpu_class}: leave it out, or say --class critical"
            )
        if self.vgpu_class == BEST_EFFORT and not self.space:
            raise EntitlementError(
                "--class best-effort fills what is left in a space: say --space NAME, that of the critical vGPU beside it"
            )

    @property
    def limit_permille(self) -> int:
        """As the control page has it: thousandths of the GPU; 0: no limit."""
        return round(self.limit * 10) if self.limit < WHOLE else 0

    def changed(self, changes: Changes) -> Self:
        """This one with some fields replaced. With another class go what only critical ones have, unless it is said."""
        if changes.get("vgpu_class", CRITICAL) != CRITICAL:
            changes = {"qos": "", "most": _MOST, **changes}
        return dataclasses.replace(self, **changes)

    def followed_by(self, other: Self) -> Self:
        """The other one, as far as a vGPU that has this one can follow."""
        return self.changed(
            {name: getattr(other, name) for name, parameter in PARAMETERS.items() if not parameter.is_for_life}
        )

    def fixed(self, other: Self) -> list[str]:
        """Keys of what the other one has otherwise, and a vGPU that has this one keeps."""
        return [
            parameter.key
            for name, parameter in PARAMETERS.items()
            if parameter.is_for_life and getattr(self, name) != getattr(other, name)
        ]

    def written(self) -> dict[str, Any]:
        """Its values by their keys, as metadata and requests have them."""
        return {parameter.key: getattr(self, name) for name, parameter in PARAMETERS.items()}

    def __str__(self) -> str:
        """For people: `weight 2, memory 4 GiB`."""
        shown = ((parameter, parameter.show(getattr(self, name))) for name, parameter in PARAMETERS.items())
        return ", ".join(f"{parameter.option.removeprefix('--')} {value}" for parameter, value in shown if value)


PARAMETERS: Mapping[str, Parameter] = {
    each.name: each.metadata["parameter"] for each in dataclasses.fields(Entitlement)
}
"""How each field is written, by its name."""

PLAIN = Entitlement()
"""What a vGPU has when nobody says anything."""

_FOR_LIFE = (
    "a vGPU keeps what it was made with, for life: make another one so, by fairgv-host attach or fairgv-run, or this one anew: detach it, or "
    "end its programs, first"
)

KEYS = frozenset(parameter.key for parameter in PARAMETERS.values())


def read_changes(written: Mapping[str, object], *, as_options: bool = False, is_new: bool = True) -> Changes:
    """What `written` says of the entitlement of a vGPU, new or not; other keys are left alone. Raises EntitlementError, which names keys, or
    options with `as_options`."""
    changes: dict[str, Any] = {}
    for name, parameter in PARAMETERS.items():
        if parameter.key in written:
            try:
                changes[name] = parameter.parse(written[parameter.key])
                if parameter.is_for_life and not is_new:
                    raise EntitlementError(_FOR_LIFE)
            except EntitlementError as error:
                raise EntitlementError(f"{parameter.option if as_options else parameter.key}: {error}") from None
    return changes


def add_options(parser: argparse.ArgumentParser, *, is_new: bool = True) -> None:
    """An option for each field that the entitlement of a vGPU, new or not, can get. One that is not given is not said. Those that one which is
    there cannot get are refused with what to do, and not shown."""
    for parameter in PARAMETERS.values():
        is_kept = parameter.is_for_life and not is_new
        parser.add_argument(
            parameter.option,
            dest=parameter.key,
            type=_refusing if is_kept else _argument(parameter),
            action=_OneForLife if parameter.is_for_life else "store",
            default=argparse.SUPPRESS,
            metavar=parameter.metavar,
            help=argparse.SUPPRESS if is_kept else parameter.help,
        )


def given_options(options: argparse.Namespace) -> dict[str, Any]:
    """What the command line said, as a request has it."""
    return {key: value for key, value in vars(options).items() if key in KEYS}


def option_names() -> str:
    """Those that can change, for a sentence: `--weight or --memory`."""
    return " or ".join(parameter.option for parameter in PARAMETERS.values() if not parameter.is_for_life)


class _OneForLife(argparse.Action):
    """Of other options the last one holds."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        before = getattr(namespace, self.dest, values)
        if before != values:
            raise argparse.ArgumentError(self, f"a vGPU has one, for life: give {before} or {values}, not both")
        setattr(namespace, self.dest, values)


def _refusing(text: str) -> Any:
    raise argparse.ArgumentTypeError(_FOR_LIFE)


def _argument(parameter: Parameter) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            return parameter.parse(text)
        except EntitlementError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parse
