"""The last line of `top`: what its keys do; a click on one does the same.

It is one widget with one text, which is there with the first screen. Textual's own footer makes a widget for each key, and makes all of
them anew whenever the focus may have changed, after the screen was drawn: on a busy host it stayed empty for a while. Wrong when: a key
goes or comes while the view runs.
"""

from collections.abc import Sequence

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Static


class Keys(Static):
    """Of those bindings that are to be shown; `namespace` is where an action is looked for that names no place."""

    DEFAULT_CSS = """
    Keys { dock: bottom; height: 1; text-wrap: nowrap; background: $footer-background; color: $footer-description-foreground; }
    """

    def __init__(self, *bindings: tuple[str, Sequence[BindingType]]) -> None:
        super().__init__(
            Content(" ").join(
                _label(namespace, binding)
                for namespace, some in bindings
                for binding in some
                if isinstance(binding, Binding) and binding.show
            )
        )
        self.auto_links = False


def _label(namespace: str, binding: Binding) -> Content:
    return Content.from_markup(
        f"[@click={namespace}.{binding.action}] [bold $footer-key-foreground]$key[/] $what[/]",
        key=binding.key_display or binding.key,
        what=binding.description,
    )
