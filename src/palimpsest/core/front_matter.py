"""Front matter of Markdown files: one `key: value` a line between two lines of `---`, as skills, roles and notes have it."""

import json
from typing import Final

from palimpsest.core.items import Value
from palimpsest.core.text import lazy_pattern

FENCE: Final = "---"
_FIELD: Final = lazy_pattern(r"([A-Za-z_][\w.-]{0,60})[ \t]*:(?:[ \t]+(.*)|[ \t]*)$")
_BLOCK: Final = lazy_pattern(r"[|>][+-]?\d?$")


class FrontMatter(Value, frozen=True):
    """The fields of a front matter in their order, each with all of its lines, and the text below it."""

    fields: tuple[tuple[str, str], ...]
    body: str

    def texts(self) -> dict[str, str]:
        """Return the plain text of each field; of equal keys the last one counts."""
        return {key: _scalar_text(lines) for key, lines in self.fields if key}

    def nested(self, key: str, inner: str) -> str:
        """Return the text of an indented field below a field; empty if there is none."""
        below = [line.strip() for name, lines in self.fields if name == key for line in lines.split("\n")[1:]]
        found = next((match for line in below if (match := _FIELD.match(line)) and match[1] == inner), None)
        return "" if found is None else _unquoted((found[2] or "").strip())


def read_front_matter(text: str) -> FrontMatter | None:
    """Return the front matter of a text and what is below it; `None` if it has none."""
    lines = text.lstrip("\ufeff").replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != FENCE:
        return None
    end = next((place for place, line in enumerate(lines[1:], 1) if line.rstrip() == FENCE), None)
    if end is None:
        return None
    fields: list[tuple[str, str]] = []
    for line in lines[1:end]:
        found = _FIELD.match(line)
        if found is not None:
            fields.append((found[1], line))
        elif fields and (not line.strip() or line[0] in " \t"):
            # An indented line continues the value of the field above it.
            fields[-1] = (fields[-1][0], f"{fields[-1][1]}\n{line}")
        else:
            fields.append(("", line))
    return FrontMatter(tuple(fields), "\n".join(lines[end + 1 :]))


def field_line(key: str, value: str) -> str:
    """Return the line of a field, quoted where a reader of YAML would take the value for something else than this text."""
    text = " ".join(value.split("\n"))
    is_plain = text[:1] not in "[\"'#{&*!|>%@`" if text else True
    quoted = text if is_plain and text == text.strip() and " #" not in text else json.dumps(text, ensure_ascii=False)
    return f"{key}: {quoted}"


def _scalar_text(lines: str) -> str:
    """Return the text of a field: of its line, of the indented lines below it, or of a block."""
    first, *rest = lines.split("\n")
    found = _FIELD.match(first)
    text, more = (found[2] or "").strip() if found else "", [line.strip() for line in rest]
    if _BLOCK.fullmatch(text):
        return ("\n" if text[0] == "|" else " ").join(more).strip()
    joined = " ".join((text, *(line for line in more if line))).strip()
    if joined[:1] in ("'", '"'):
        return _unquoted(joined)
    return joined.partition(" #")[0].rstrip() if not joined.startswith("#") else ""


def _unquoted(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] == '"':
        try:
            decoded = json.loads(text)
        except ValueError:
            return text[1:-1].replace('\\"', '"').replace("\\\\", "\\")
        return decoded if isinstance(decoded, str) else text
    if len(text) >= 2 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    return text
