"""The screens of `top`, as they were last looked at and found good: the same text with colours and without."""

import pytest

from tests.backend_host.top.snapshots import SCENES, SCREENS, SIZES, path_of, screen


@pytest.mark.parametrize("is_colored", [True, False], ids=["colored", "no-color"])
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("scene", SCENES)
def test_screens(scene: str, size: tuple[int, int], is_colored: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_colored:
        monkeypatch.delenv("NO_COLOR", raising=False)
    else:
        monkeypatch.setenv("NO_COLOR", "1")
    lines, colors = screen(scene, size)
    assert lines == path_of(scene, size).read_text().splitlines(), (
        "if that is better: python -m tests.backend_host.top.snapshots"
    )
    has_hue = any(len(set(color)) > 1 for color in colors)
    assert has_hue == is_colored


def test_no_screen_is_left_over() -> None:
    assert set(SCREENS.iterdir()) == {path_of(scene, size) for scene in SCENES for size in SIZES}
