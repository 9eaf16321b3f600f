"""Tables that a command makes and puts into documents, each between the two marks of its place."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from palimpsest.lab.bench.markdown import replace_table
from palimpsest.stores.files import write_whole


def require_placeholders(documents: tuple[Path, ...], places: Iterable[str]) -> None:
    """Refuse a document that has a place for none of the tables, before anybody works for minutes to make them."""
    put(documents, dict.fromkeys(places, ""), write=False)


def put(documents: tuple[Path, ...], tables: Mapping[str, str], *, write: bool = True) -> None:
    """Put tables where a document has places for them; one that has none of them is a mistake."""
    for path in documents:
        text = path.read_text(encoding="utf-8")
        places = [place for place in tables if f"<!-- {place} begins -->" in text] or list(tables)
        for place in places:
            text = replace_table(text, tables[place], str(path), place)
        if write:
            write_whole(path, (text.encode(),), replace=True)
