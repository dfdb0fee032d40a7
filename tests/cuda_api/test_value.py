"""Values of the table: what is refused, where they may stand, and what C and Python get of them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from cuda_api import table
from cuda_api.generated import values as python_values
from cuda_api.generators import values as generator
from cuda_api.table import TableError

BASE = """
[values.place]
about = "Where bytes are."
ends = "ring"
enum = { inline = 0, arena = 1 }

[values.max_items]
about = "Of a list."
ends = "ring"
constant = 3

[values.pair]
about = "Two numbers."
ends = "ring"
struct = "uint32_t first; uint32_t second[1]"

[values.reason]
about = "Why not."
ends = "variants"
enum = { too_large = 2 }

[values.state_name]
about = "Of the variable."
ends = "variants"
constant = "fgv_state"

[internal.list]
number = 0xF000
answer = "sync"
cost = "none"
order = "free"
waits = "none"
wire = "uint64_t of; uint32_t place; uint32_t reserved"
reply = "pair pairs[max_items]; pair last; uint64_t items[max_items]"
"""
ROOT = Path(__file__).resolve().parents[2]


def test_a_record_may_have_structs_and_lengths_of_the_table() -> None:
    reply = table.from_text(BASE).by_name["list"].reply
    assert [(offset, field.declaration()) for offset, field in reply.fields] == [
        (0, "struct fgv_pair pairs[3];"),
        (24, "struct fgv_pair last;"),
        (32, "uint64_t items[3];"),
    ]
    assert reply.size_bytes == 56


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('about = "Of a list."', 'abuot = "Of a list."', "values.max_items: 'abuot' means nothing"),
        ('about = "Of a list."', "", "values.max_items: about = None is no sentence"),
        ('about = "Of a list."', 'about = "of a list"', "values.max_items: about = 'of a list' is no sentence"),
        ('ends = "variants"', 'ends = "variant"', "values.reason: ends = 'variant' is none of ring, variants"),
        ("constant = 3", "contsant = 3", "values.max_items: 'contsant' means nothing"),
        ("constant = 3", "", "values.max_items: has none of enum, constant, struct"),
        ("constant = 3", "constant = 3\nenum = { a = 1 }", "values.max_items: has enum and constant of"),
        ("constant = 3", "constant = -3", "values.max_items: constant = -3 is neither a number of 32 bits nor"),
        ("constant = 3", "constant = 4294967296", "constant = 4294967296 is neither"),
        ("constant = 3", "constant = true", "constant = True is neither"),
        ('"fgv_state"', "'fgv\"state'", "values.state_name: constant = 'fgv\"state' is neither"),
        ("constant = 3", "constant = 0", "internal.list: reply: pairs: max_items is the length of no array"),
        ("pairs[max_items]", "pairs[max_itmes]", "internal.list: reply: pairs: max_itmes is the length of no array"),
        ("pairs[max_items]", "pairs[state_name]", "internal.list: reply: pairs: state_name is the length of no array"),
        ("pair last", "piar last", "internal.list: reply: not a member of a wire struct: 'piar last'"),
        ("pair last", "place last", "internal.list: reply: not a member of a wire struct: 'place last'"),
        ("inline = 0", "Inline = 0", "values.place: enum: 'Inline' is no name of a member"),
        ("inline = 0", "inline = 1", "values.place: enum: inline has the number of another member"),
        ("inline = 0", "inline = -1", "values.place: enum: inline = -1 is no number of 32 bits"),
        ("{ inline = 0, arena = 1 }", "{}", "values.place: enum = {} has no members"),
        ("{ inline = 0, arena = 1 }", "3", "values.place: enum = 3 has no members"),
        ("uint32_t first;", "uint32_t size;", "values.pair: struct: size is what Python calls the size"),
        ("uint32_t first;", "uint64_t first;", "values.pair: struct: 12 bytes are no multiple of 8"),
        ("uint32_t first;", "pair first;", "values.pair: struct: not a member of a wire struct: 'pair first'"),
        ('"uint32_t first; uint32_t second[1]"', "8", "values.pair: struct = 8 is not a str"),
        ("[values.pair]", "[values.Pair]", "values.Pair: a name is of small letters"),
        ("[values.max_items]", "[values.place_arena]", "values: FGV_PLACE_ARENA is there twice"),
    ],
)
def test_a_mistake_stops_generation_with_its_place(old: str, new: str, message: str) -> None:
    assert BASE.count(old) >= 1
    with pytest.raises(TableError, match=re.escape(message)):
        table.from_text(BASE.replace(old, new, 1))


def test_the_hash_covers_what_guest_and_worker_agree_on() -> None:
    before = table.from_text(BASE).hash
    for old, new in (("arena = 1", "arena = 2"), ("constant = 3", "constant = 4"), ("first;", "other;")):
        assert table.from_text(BASE.replace(old, new)).hash != before, old
    for old, new in (("too_large = 2", "too_large = 3"), ("fgv_state", "fgv_other"), ("Of a list.", "Of lists.")):
        assert table.from_text(BASE.replace(old, new)).hash == before, old


def test_each_end_has_a_header_of_its_own(tmp_path: Path) -> None:
    example = table.from_text(BASE)
    ring, variants = generator.generate(example), generator.generate_variants(example)
    assert "FGV_PLACE_ARENA = 1" in ring
    assert "FGV_PLACE_ARENA" not in variants
    assert "FGV_REASON_TOO_LARGE = 2" in variants
    assert "FGV_REASON" not in ring
    (tmp_path / "both.c").write_text(
        f"{ring}{variants}"
        '_Static_assert(FGV_MAX_ITEMS == 3 && sizeof(FGV_STATE_NAME) == 10 && sizeof(struct fgv_pair) == 8, "");\n'
    )
    subprocess.run(["cc", "-std=c11", "-Werror", "-fsyntax-only", str(tmp_path / "both.c")], check=True)


def test_python_has_them_all() -> None:
    namespace: dict[str, object] = {}
    exec(generator.generate_python(table.from_text(BASE)), namespace)
    assert namespace["MAX_ITEMS"] == 3
    assert namespace["STATE_NAME"] == "fgv_state"
    place, pair = namespace["Place"], namespace["Pair"]
    assert [(member.name, int(member)) for member in place] == [("INLINE", 0), ("ARENA", 1)]  # type: ignore[attr-defined]
    assert vars(pair).items() >= {"FIRST": 0, "SECOND": 4, "SIZE": 8}.items()


def test_words_for_people() -> None:
    assert python_values.Whole.HELD_UP_STREAM.text == "held up stream"
