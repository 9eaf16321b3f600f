"""Notes as plain files: how their index is shown, how a recalled file is framed, and what a changed file must be."""

from collections.abc import Iterable, Sequence
from datetime import date
from typing import Final

from palimpsest.core.front_matter import read_front_matter
from palimpsest.core.items import Value
from palimpsest.core.redaction import redact
from palimpsest.core.text import within
from palimpsest.memory.changes import LEAST_TEXT_SHARE, QuotableEvent, fact_of, missing_token, wording_of
from palimpsest.memory.note import KINDS

INDEX: Final = "MEMORY.md"
MOST_LINES: Final = 200
# Documented as 25,000 bytes and counted in characters.
MOST_CHARACTERS: Final = 25_000
# Characters of a file that is recalled; a longer one ends with a line that says where the rest is.
LONGEST_RECALLED: Final = 25_000
LARGEST_FILE: Final = 64 * 1024
"""Bytes of one file."""
_DAY_MS: Final = 86_400_000
_WISHES: Final = ("user", "feedback")


class TopicFile(Value, frozen=True):
    """A file of notes: its name, the time of its last change in milliseconds since 1970, and its text."""

    name: str
    changed: int
    text: str


def bounded_index(text: str) -> str:
    """Return an index as a session states it: its first 200 lines, of these at most 25,000 characters, and a warning if that cut it."""
    text = text.strip()
    lines = text.split("\n")
    kept = "\n".join(lines[:MOST_LINES])
    if len(kept) > MOST_CHARACTERS:
        end = kept.rfind("\n", 0, MOST_CHARACTERS)
        kept = kept[: end if end > 0 else MOST_CHARACTERS]
    if kept == text:
        return text
    size = f"{len(lines):,} lines and {len(text):,} characters; {MOST_LINES} lines and {MOST_CHARACTERS:,} characters are loaded"
    first = text[len(kept) :].lstrip("\n").split("\n")[0][:200]
    left = len(lines) - len(kept.split("\n"))
    return (
        f"{kept}\n\n> WARNING: {INDEX} is too large: it has {size}. Only part of it stands here.\n"
        f"> {left:,} lines are left out, from: {first}\n"
        "> Keep each entry to one line of at most about 200 characters, and move details into the topic files."
    )


def recalled_text(file: TopicFile, path: str, now: int) -> str:
    """Return a recalled file as a reminder: a header with its path and age, and its whole text."""
    days = max(0, (now - file.changed) // _DAY_MS)
    age = "today" if days == 0 else "yesterday" if days == 1 else f"{days:,} days ago"
    head = f"Memory (saved {age}): {path}"
    if days > 1:
        head += "\nIt says how things were then. Check it against the present files before you rely on it."
    body = redact(file.text).strip()
    if len(body) > LONGEST_RECALLED:
        body = f"{body[:LONGEST_RECALLED]}\n[cut here; read {path} for the rest]"
    return within("system-reminder", f"{head}\n\n{body}")


def file_problem(name: str, old: str | None, new: str) -> str:
    """Return why a file of notes may not become this text; empty if it may.

    What a person wrote before is no reason: only what the change adds is judged.
    """
    if len(new.encode("utf-8", "replace")) > LARGEST_FILE:
        return f"a file of notes has at most {LARGEST_FILE:,} bytes; split the topic"
    if not new.strip():
        return ""
    if redact(added_text(old, new)) != added_text(old, new) or (redact(new) != new and redact(old or "") == (old or "")):
        return "it holds what looks like a password or key, which notes never do; leave it out"
    if name == INDEX or (old is not None and old.strip() and front_problem(old)):
        return ""
    return front_problem(new)


def front_problem(text: str) -> str:
    """Return what is missing in the front matter of a topic file; empty if nothing is."""
    front = read_front_matter(text)
    texts = {} if front is None else front.texts()
    kind = texts.get("type") or ("" if front is None else front.nested("metadata", "type"))
    missing = [field for field in ("name", "description") if not texts.get(field, "").strip()]
    if kind not in KINDS:
        missing.append(f"type ({', '.join(KINDS)})")
    return f"a topic file begins with a front matter between lines of ---; missing: {', '.join(missing)}" if missing else ""


def added_text(old: str | None, new: str) -> str:
    """Return the lines of a text that an earlier version does not have."""
    known = frozenset((old or "").split("\n"))
    return "\n".join(line for line in new.split("\n") if line not in known)


def unsupported(old: str | None, new: str, sources: Sequence[QuotableEvent]) -> str:
    """Return why the events do not support what a change adds to a topic file; empty if they do.

    Its paths, commands, numbers and quotations stand in the events, no two neighbouring words stem only from a text of outside, and
    what a note says about the user or the user's wishes has words of the user.
    """
    front = read_front_matter(new)
    texts = {} if front is None else front.texts()
    kind = texts.get("type") or ("" if front is None else front.nested("metadata", "type"))
    body = added_text(old, new if front is None else front.body).strip()
    if not body:
        return ""
    trusted = [source.text for source in sources if source.speaker != "untrusted"]
    outside = [source.text for source in sources if source.speaker == "untrusted"]
    if missing := missing_token(_plain(body), [*trusted, *outside, old or ""], _days(sources)):
        return f"the conversation does not contain {missing!r}"
    if pairs := wording_of(body, [*trusted, old or ""], outside).copied_pairs:
        return f"it repeats a text from outside of the project ({' '.join(pairs[0])!r}), which no note may rest on"
    users = [source.text for source in sources if source.speaker == "user"]
    if kind in _WISHES and wording_of(fact_of(body), users, (), ("user",)).share < LEAST_TEXT_SHARE:
        return f"the user did not say it: a {kind} note has words of the user"
    return ""


def _plain(body: str) -> str:
    """Return a text without the marks of links between notes, which name files and not what was said."""
    return body.replace("[[", "").replace("]]", "")


def _days(sources: Iterable[QuotableEvent]) -> tuple[date, ...]:
    return tuple(date.fromisoformat(source.at[:10]) for source in sources)
