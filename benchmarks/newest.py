"""Of several documents what was measured last: a record counts until a newer document of the same device has one of the same subject."""

from collections.abc import Callable, Sequence

from benchmarks.document import Document, Record, origin
from benchmarks.experiments import EXPERIMENTS


def surviving(documents: Sequence[Document]) -> list[Document]:
    """Those that have something newest to say, each with that alone, in the order that they came in."""
    ranked = sorted(documents, key=lambda document: (document["date"], document.get("repetitions") or 0))
    last = {
        (_place(document), subject): document
        for document in ranked
        for subject in map(_subject(document), _all(document))
    }
    found = []
    for document in documents:
        key, place = _subject(document), _place(document)
        kept = [record for record in _all(document) if last[place, key(record)] is document]
        if kept:
            found.append({**document, _list_of(document): kept})
    return found


def merged(documents: Sequence[Document]) -> list[Document]:
    """One for each experiment, device and kind of guests; `origins` tell where its records are from."""
    found: dict[tuple[str, ...], list[Document]] = {}
    for document in surviving(documents):
        found.setdefault(_place(document), []).append(document)
    return [_one(several) for several in found.values()]


def _one(documents: Sequence[Document]) -> Document:
    newest = max(documents, key=lambda document: document["date"])
    records = [record for document in documents for record in _all(document)]
    return {**newest, _list_of(newest): records, "origins": [origin(document) for document in documents]}


def _place(document: Document) -> tuple[str, ...]:
    """What is measured, where."""
    return document["experiment"], document["device"], document.get("guests") or "process"


def _subject(document: Document) -> Callable[[Record], tuple[object, ...]]:
    """What a record is about; a document of another kind than these is replaced as a whole."""
    kind = document["experiment"]
    if kind in EXPERIMENTS:
        subjects = EXPERIMENTS[kind].subjects
        return lambda record: (
            record["kind"],
            *(_one_value(record[name]) for name in subjects.get(record["kind"], ())),
            *(guest.get("weight") for guest in record.get("guests", ())),
        )
    return lambda step: (step["name"],)


def _one_value(value: object) -> object:
    """A list's values in one that can be compared by a table."""
    return tuple(map(_one_value, value)) if isinstance(value, list) else value


def _list_of(document: Document) -> str:
    return "records" if "records" in document else "steps"


def _all(document: Document) -> list[Record]:
    found: list[Record] = document[_list_of(document)]
    return found
