"""The reader of kinds.c: what it refuses, and that the page has what the worker has."""

import pytest

from backend_host import kinds
from backend_host.kinds import Kind, KindsError

BASE = """
const struct fgw_kind fgw_kinds[FGW_NR_KINDS] = {
    /* its
     * flags */
    [FGV_HANDLE_CONTEXT] = {.name = "context",
                            .above = FGW_BELOW(0),
                            .save = fgw_context_save,
                            .restore = fgw_context_restore},
    [FGV_HANDLE_LINK] = {.name = "link", .above = FGW_BELOW(0) | FGW_BELOW(FGV_HANDLE_CONTEXT), .is_of_context = true,
                         .cannot =
                             "the driver, alone, "
                             "has it"},
};
"""


def test_rows_are_read() -> None:
    assert kinds.from_text(BASE) == (
        Kind("context", ("client",), False, "its flags", ""),
        Kind("link", ("client", "context"), True, "", "the driver, alone, has it"),
    )


def test_the_table_tells_them() -> None:
    assert list(kinds.table(kinds.from_text(BASE)))[2:] == [
        "| context | the client | its flags |  |",
        "| link | the client or its context |  | the driver, alone, has it |",
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (".restore = fgw_context_restore", ".attach = fgw_x", "context: it has save and restore, or cannot"),
        (".save = fgw_context_save,", "", "context: it has save and restore, or cannot"),
        ("/* its\n     * flags */", "", "context: a comment before the row"),
        ("    [FGV_HANDLE_LINK]", "    /* all */ [FGV_HANDLE_LINK]", "link: a comment before the row"),
        ("FGW_BELOW(FGV_HANDLE_CONTEXT)", "FGW_BELOW(FGV_HANDLE_CONTEXTS)", "link: above = "),
        (".above = FGW_BELOW(0),\n", "", "context: above = None are no kinds"),
        ('.name = "link", ', "", "FGV_HANDLE_LINK: it has no name"),
        ("[FGV_HANDLE_LINK] = {", "[FGV_HANDLE_LINK] = {{0}, ", "a row is none that this reader knows"),
        ("fgw_kinds[", "fgw_sorts[", "there is no array fgw_kinds"),
    ],
)
def test_what_is_wrong_is_named(old: str, new: str, message: str) -> None:
    assert old in BASE
    with pytest.raises(KindsError, match=message.replace("[", r"\[")):
        kinds.from_text(BASE.replace(old, new))


def test_a_page_has_one_place_for_the_table() -> None:
    place = "<!-- kinds: begin. -->\nold\n<!-- kinds: end -->\n"
    assert "old" not in kinds.page(f"# Page\n{place}")
    for text in ("# Page\n", place * 2):
        with pytest.raises(KindsError, match="places for the table"):
            kinds.page(text)
