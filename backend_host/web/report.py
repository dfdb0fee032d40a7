"""The page as one file, with the last hour in it: it opens from disk, anywhere, and asks nobody for anything.

The files of the page stand in it as they are; its policy names them by their hashes, and nothing else may run.
"""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from backend_host.errors import FairGVError
from backend_host.web.files import PAGE, SCRIPTS, STYLES, policy_of_report, text_of
from backend_host.whole_file import whole

_STYLE_LINK = re.compile(r' *<link rel="stylesheet" href="[^"]+">\n')
_SCRIPT_LINK = re.compile(r' *<script src="[^"]+" defer></script>\n')


def write(path: Path, document: dict[str, Any]) -> None:
    """Writes the file, as a whole or not at all. FairGVError when it cannot be written."""
    try:
        with whole(path) as place:
            place.write_text(page_of(document), encoding="utf-8")
    except OSError as error:
        raise FairGVError(f"cannot write {path}: {error.strerror}") from error


def page_of(document: dict[str, Any]) -> str:
    """The whole page as text."""
    styles, scripts = [text_of(name) for name in STYLES], [text_of(name) for name in SCRIPTS]
    policy = policy_of_report(_hashes(styles), _hashes(scripts))
    head = f'  <meta http-equiv="Content-Security-Policy" content="{policy}">\n'
    head += "".join(f"  <style>{style}</style>\n" for style in styles)
    data = json.dumps(document, separators=(",", ":")).replace("<", "\\u003c")  # nothing in it ends the element
    tail = f'  <script type="application/json" id="document">{data}</script>\n'
    tail += "".join(f"  <script>{script}</script>\n" for script in scripts)
    text = _SCRIPT_LINK.sub("", _STYLE_LINK.sub("", text_of(PAGE)))
    return text.replace("</head>\n", head + "</head>\n", 1).replace("</body>\n", tail + "</body>\n", 1)


def _hashes(texts: Sequence[str]) -> list[str]:
    return [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
