"""cuda_api/record.py: what dataclasses do, where records say that they do it."""

import copy
import pickle
from typing import Any

import pytest

from cuda_api.record import field, mutable_record, record, replace


@record
class Point:
    """In a plane."""

    x: int
    y: int = 0
    note: str = field(default="", compare=False)

    @property
    def square(self) -> int:
        return self.x * self.x + self.y * self.y


@record
class Size:
    x: int
    y: int = 0


@mutable_record
class Path:
    points: list[Point] = field(default_factory=list)
    is_closed: bool = False


def test_fields_are_given_in_order_or_by_name() -> None:
    for point in (Point(1, 2, "a"), Point(1, note="a", y=2), Point(x=1, y=2, note="a")):
        assert (point.x, point.y, point.note, point.square) == (1, 2, "a", 5)
    assert (Point(3).y, Point(3).note) == (0, "")


@pytest.mark.parametrize(
    ("values", "named"), [((), {}), ((1, 2, "a", 4), {}), ((1,), {"x": 1}), ((1,), {"z": 1}), ((), {"y": 1})]
)
def test_other_fields_are_an_error(values: tuple[Any, ...], named: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        Point(*values, **named)


def test_each_has_its_own_of_what_a_factory_makes() -> None:
    first, second = Path(), Path()
    first.points.append(Point(1))
    assert (first.points, second.points) == ([Point(1)], [])


def test_what_is_compared() -> None:
    assert Point(1, 2, "a") == Point(1, 2, "b")
    assert hash(Point(1, 2, "a")) == hash(Point(1, 2, "b"))
    others: list[object] = [Point(2, 1), Size(1, 2), (1, 2, "")]
    assert Point(1, 2) not in others
    assert Path([Point(1)]) == Path([Point(1)])


def test_what_changes_has_no_hash_and_what_has_one_does_not_change() -> None:
    path = Path()
    path.is_closed = True
    assert path == Path(is_closed=True)
    with pytest.raises(TypeError):
        hash(path)
    point: Any = Point(1)
    with pytest.raises(AttributeError):
        point.x = 2
    with pytest.raises(AttributeError):
        del point.x
    assert point.x == 1
    with pytest.raises(AttributeError):
        point.z = 2


def test_a_copy_with_changes() -> None:
    assert replace(Point(1, 2, "a"), y=3) == Point(1, 3)
    assert replace(Point(1, 2, "a"), y=3).note == "a"
    with pytest.raises(TypeError, match="'z'"):
        replace(Point(1), z=1)


def test_it_reads_matches_copies_and_travels() -> None:
    point = Point(1, 2, "a")
    assert repr(point) == "Point(x=1, y=2, note='a')"
    assert Point.__doc__ == "In a plane."
    match point:
        case Point(x, y):
            assert (x, y) == (1, 2)
    for other in (copy.copy(point), copy.deepcopy(point), pickle.loads(pickle.dumps(point))):
        assert (other, other.note) == (point, "a")
