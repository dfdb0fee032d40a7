"""Shares as bars and as small curves, readable with and without colours."""

from collections.abc import Iterable, Sequence

from rich.text import Text

_EIGHTHS = " ▏▎▍▌▋▊▉"
_FULL = "█"
_LEVELS = "▁▂▃▄▅▆▇█"
_MARK = "┃"
_MISSING = "·"
_END = "│"
_SCALES = (1 / 8, 1 / 4, 1 / 2)
GOT, SHORT, MARKED, FAINT = "green", "yellow", "bold", "dim"


def scale_of(shares: Iterable[float]) -> float:
    """The share at which bars are full, so that many small ones can be told apart. It is one of few, so that it seldom changes."""
    greatest = max(shares, default=1.0)
    return next((scale for scale in _SCALES if greatest <= scale), 1.0)


def bar(share: float, entitled: float | None, width: int, scale: float = 1.0, *, is_short: bool = False) -> Text:
    """A share, full at `scale`, and a mark where what one is entitled to ends. Dots are what lacks up to the mark. `is_short` colours it."""
    style = SHORT if is_short else GOT
    filled = _filled(share / scale, width)
    text = Text(filled, style)
    if entitled is not None:
        place = min(width - 1, round(entitled / scale * width))
        text = Text(filled[:place], style)
        text.append(_MISSING * (place - len(filled)), style)
        text.append(_MARK, MARKED)
        text.append(filled[place + 1 :], style)
    text.append(" " * (width - len(text)))
    return text


def whole_bar(share: float, width: int) -> Text:
    """A share of all there is, and the end of that."""
    return Text(_filled(share, width - 1).ljust(width - 1), GOT).append(_END, FAINT)


def _filled(part: float, width: int) -> str:
    """In eighths of cells."""
    eighths = max(0, min(width * 8, round(part * width * 8)))
    return _FULL * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")


def curve(shares: Sequence[float | None], scale: float = 1.0) -> Text:
    """A cell for each share, full at `scale`; what is not known is blank."""
    return Text("".join(" " if share is None else _level(share / scale) for share in shares), "cyan")


def _level(part: float) -> str:
    return _LEVELS[max(0, min(len(_LEVELS) - 1, int(part * len(_LEVELS))))]
