"""Each floor of the worker has a struct of its own (state.h), which files of other floors may read, and not write.

Wrong when: a file writes through a pointer into another floor's data that it got from a function.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend_host.worker.build_ffi import HERE

FLOOR_OF = {"track": "track", "turn": "turn", "slicing": "parts", "calls": "calls", "replay": "replay", "loop": "loop"}
"""Of what each member of `struct fgw_worker` points at. Everything else in it is the client's."""
_WRITE = r"(?:\[[^\]]*\]|[.\w])*\s*(?:=(?!=)|[-+|&]=|\+\+|--)"
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


def members_of_the_client() -> list[str]:
    text = _COMMENT.sub("", (HERE / "client/state.h").read_text())
    found = re.search(r"struct fgw_worker \{(.*?)\n\};", text, re.DOTALL)
    assert found is not None
    names = re.findall(r"(\w+)(?:\[\w+\])?;", found[1])
    return [name for name in names if name not in FLOOR_OF]


def writes(text: str, floor: str) -> Iterator[str]:
    """What a file of this floor writes of other floors' data, or takes a pointer to that it could write by."""
    text = _COMMENT.sub("", text)
    for member, home in FLOOR_OF.items():
        if floor != home:
            yield from (found[0] for found in re.finditer(rf"->{member}->{_WRITE}", text))
            yield from (found[0] for found in re.finditer(rf"(?<!const )struct fgw_{member} \*\w+ = ", text))
    if floor != "client":
        members = "|".join(members_of_the_client())
        yield from (found[0] for found in re.finditer(rf"\bworker->(?:{members})\b{_WRITE}", text))


FILES = [path for path in sorted(HERE.glob("*/*.[ch]")) if path.parent.name != "generated"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_other_floor_writes_a_floors_data(path: Path) -> None:
    assert list(writes(path.read_text(), path.parent.name)) == []


@pytest.mark.parametrize(
    ("text", "floor"),
    [
        ("worker->track->nr_gates++;", "turn"),
        ("worker->turn->beside.bytes = 3;", "calls"),
        ("struct fgw_loop *loop = worker->loop;", "turn"),
        ("worker->contexts[i] = NULL;", "calls"),
        ("worker->current = context;", "loop"),
    ],
)
def test_a_write_is_found(text: str, floor: str) -> None:
    assert list(writes(text, floor)) != []


def test_a_read_is_none() -> None:
    text = "if (worker->track->nr_gates == 0 && worker->turn->gap.mean_ns <= 3) { x = worker->current; }"
    assert list(writes(text, "loop")) == []
    assert list(writes("const struct fgw_track *track = worker->track;", "loop")) == []
