"""Links of the pages as the site needs them.

On a forge the pages stand in the tree, and a link to any file of it works. The site has pages and pictures alone. Here a link to a page is made
one to its place in the site, and a link to another file becomes that file's name, as code.

Wrong when: a link has a title, or is written as a reference (`[text][name]`). tests/test_docs.py knows neither.
"""

import posixpath
import re
from collections.abc import Mapping

OUTSIDE: Mapping[str, str] = {
    "README.md": "fairgv.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "reporting.md",
    "SPECIFICATION.md": "specification.md",
    "qemu_patches/README.md": "qemu.md",
}
"""Pages of the tree that are not in docs/ and stand in the site, with their places there."""
_SOURCES = {place: path for path, place in OUTSIDE.items()}
_PART = re.compile(
    r"(?P<code>^ *(?P<fence>```|~~~).*?^ *(?P=fence) *$|`(?:[^`\n]|\n(?!\n))*`)"
    r"|\[(?P<text>(?:[^\[\]`]|`[^`]*`)*)\]\((?P<target>[^)\s]+)\)"
    r"|(?<=[ \n])(?P<attribute>src|srcset)=\"(?P<picture>[^\"]+)\"",
    re.MULTILINE | re.DOTALL,
)
"""What a link may stand in comes first: it is passed over."""
_ELSEWHERE = re.compile(r"[a-z][a-z+.-]*:|#|//", re.IGNORECASE)


def source_of(place: str) -> str:
    """The file of the tree that a page of the site is made from."""
    return _SOURCES.get(place, f"docs/{place}")


def place_of(path: str) -> str | None:
    """The place of a file of the tree in the site; None: it has none."""
    return path.removeprefix("docs/") if path.startswith("docs/") else OUTSIDE.get(path)


def for_site(text: str, place: str) -> str:
    """The text of the page at a place of the site, with links that lead somewhere there."""
    folder = posixpath.dirname(place)
    tree_folder = posixpath.dirname(source_of(place))

    def changed(found: re.Match[str]) -> str:
        target = found["target"] or found["picture"]
        if found["code"] or _ELSEWHERE.match(target):
            return found[0]
        path, mark, anchor = target.partition("#")
        path = posixpath.normpath(posixpath.join(tree_folder, path))
        there = place_of(path)
        if there is None:
            return _as_code(found["text"], path)
        link = posixpath.relpath(there, folder or ".") + mark + anchor
        return f'{found["attribute"]}="{link}"' if found["picture"] else f"[{found['text']}]({link})"

    return _PART.sub(changed, text)


def _as_code(text: str, path: str) -> str:
    words = text.replace("`", "")
    return f"`{path}`" if path.endswith(words) else f"{text} (`{path}`)"


def anchor(heading: str, separator: str = "-") -> str:
    """The anchor of a heading, as forges make it: links to it are the same here and there."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)
