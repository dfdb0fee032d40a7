"""
Records: what `dataclass(slots=True)` makes of a class, frozen or not, in a thirtieth of the time.

For each class, a dataclass has Python compile the text of six functions, which takes most of a millisecond, and the module imports `inspect`:
for the classes of a PTX tree and of its compiler, a third of what Python took to start for a first launch. Here all classes share their
functions but for `__init__`, which is compiled when the first instance is made. Not for classes that inherit fields.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, NoReturn, TypeVar, dataclass_transform, overload

T = TypeVar("T")

_REQUIRED = object()


class _Field:
    """What stands behind a field's annotation, where it is more than a plain default."""

    __slots__ = ("default", "factory", "is_compared")

    def __init__(self, default: object, factory: Callable[[], object] | None, is_compared: bool) -> None:
        self.default = default
        self.factory = factory
        self.is_compared = is_compared


@overload
def field(*, default: T, compare: bool = True) -> T: ...
@overload
def field(*, default_factory: Callable[[], T], compare: bool = True) -> T: ...
def field(*, default: Any = _REQUIRED, default_factory: Any = None, compare: bool = True) -> Any:
    """As of `dataclasses`."""
    return _Field(default, default_factory, compare)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """A class of values: compared, hashed and never changed."""
    return _made(cls, is_frozen=True)


@dataclass_transform(field_specifiers=(field,))
def mutable_record(cls: type[T]) -> type[T]:
    """The same, of objects that change, and so have no hash."""
    return _made(cls, is_frozen=False)


def replace(item: T, **changes: object) -> T:
    """A copy with other values in the fields named."""
    names: tuple[str, ...] = item.__match_args__  # type: ignore[attr-defined]
    kind: Any = type(item)
    made: T = kind(**{name: getattr(item, name) for name in names} | changes)
    return made


def _made(cls: type[T], *, is_frozen: bool) -> type[T]:
    names = tuple(cls.__annotations__)
    body = {name: value for name, value in cls.__dict__.items() if name not in ("__dict__", "__weakref__")}
    given = {name: body.pop(name, _REQUIRED) for name in names}
    fields = {name: item if isinstance(item, _Field) else _Field(item, None, True) for name, item in given.items()}
    body |= {"__slots__": names, "__match_args__": names, "__eq__": _eq, "__repr__": _repr, "__reduce__": _reduce}
    body |= {"__hash__": _hash, "__setattr__": _refuse, "__delattr__": _refuse} if is_frozen else {"__hash__": None}
    made: Any = type(cls.__name__, cls.__bases__, body)
    made.__init__ = _initialiser(made, fields, is_frozen=is_frozen)
    made._compared = attrgetter(*(name for name, item in fields.items() if item.is_compared))
    return made  # type: ignore[no-any-return]


def _initialiser(made: Any, fields: dict[str, _Field], *, is_frozen: bool) -> Callable[..., None]:
    """Makes way for a quicker one, which takes the fields as its parameters: of many classes a process has no instance."""

    def __init__(self: object, /, *values: object, **named: object) -> None:  # noqa: N807 - of the class that is made
        made.__init__ = _compiled_initialiser(made, fields, is_frozen=is_frozen)
        made.__init__(self, *values, **named)

    return __init__


def _compiled_initialiser(made: Any, fields: dict[str, _Field], *, is_frozen: bool) -> Callable[..., None]:
    scope: dict[str, Any] = {"missing": _REQUIRED}
    parameters: list[str] = []
    statements: list[str] = []
    for name, item in fields.items():
        value = name
        if item.factory is not None:
            scope[f"new_{name}"] = item.factory
            parameters.append(f"{name}=missing")
            value = f"new_{name}() if {name} is missing else {name}"
        elif item.default is not _REQUIRED:
            scope[f"default_{name}"] = item.default
            parameters.append(f"{name}=default_{name}")
        else:
            parameters.append(name)
        scope[f"put_{name}"] = getattr(made, name).__set__
        statements.append(f"put_{name}(self, {value})" if is_frozen else f"self.{name} = {value}")
    exec(f"def __init__(self, {', '.join(parameters)}): {'; '.join(statements)}", scope)
    initialiser: Callable[..., None] = scope["__init__"]
    return initialiser


def _eq(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return self._compared(self) == self._compared(other)


def _hash(self: Any) -> int:
    return hash(self._compared(self))


def _repr(self: Any) -> str:
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
    return f"{self.__class__.__qualname__}({values})"


def _reduce(self: Any) -> tuple[type, tuple[object, ...]]:
    return self.__class__, tuple(getattr(self, name) for name in self.__match_args__)


def _refuse(self: object, name: str, *_: object) -> NoReturn:
    raise AttributeError(f"{type(self).__name__} is not changed: '{name}'")
