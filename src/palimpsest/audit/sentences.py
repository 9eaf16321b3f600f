"""Sentences of prose, parted from the code, logs and tables around them, in English and Chinese."""

import re
from collections import Counter
from collections.abc import Iterator

_FENCE = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_MACHINE = re.compile(r"<((?:system|local|command|task|environment|ide|hook|\w{1,40}_host)[-_][\w-]*)>")
# An ending dot is one that a blank follows, and not that of an abbreviation; Chinese marks end a sentence wherever they stand.
_END = re.compile(
    r"(?<=[.!?;])(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\betc\.)(?<!\bvs\.)(?<!\b[Mm]ax\.)(?<!\b[Mm]in\.)(?<!\b\d\.)\s+|(?<=[。！？；])|\n+"
)
_LEAD = re.compile(r"^\s*(?:[-*•>#]+\s+|\(?\d{1,3}[.)、]\s*|[（(][一二三四五六七八九十\d]+[)）]\s*|\[[ xX]\]\s*|☐\s*)*")
_LOG = re.compile(
    r"\s*(?:at\s+\S+\s*\(|\{\"|\"\w+\":|\[\d|\d{4}-\d\d-\d\d[T ]|\d\d:\d\d:\d\d|\||"
    r"[+-]{3}\s|@@|[│┃└├]|\$\s|>>>|\w+Error:|Traceback|\[?(?:ERROR|WARN(?:ING)?|INFO|DEBUG|TRACE|FATAL|FAILED|PASSED)\]?[: ]|"
    r"npm (?:ERR|WARN|err|warn)|"
    r"(?:GET|POST|PUT|DELETE|PATCH|HEAD) /|Process finished|Tests?: \d|thread '|[Ee]xit (?:code|status):? \d|Segmentation fault|"
    r"(?:warning|error|fatal|panic|curl|bash|zsh|git|cargo|docker)(?:\[\w+\])?: |make: |import \w+|"
    r"from \w+ import)"
)
_CODE = re.compile(r"[{}<>=;|\\^$]|::|->|=>|\(\)")
_SIGNS = re.compile(r"[\[\]{}:/\\<>=|0-9]")
_ALIKE, _BEGINNING = 5, 10
_HAN = re.compile(r"[\u3400-\u9fff]")
_LETTERS = re.compile(r"[^\W\d_]")


def is_prose(line: str) -> bool:
    """Whether a line is something that a person says, and not a piece of a log, of code or of a table."""
    if not line or _LOG.match(line) is not None:
        return False
    start = line[:400]
    # A Chinese sign says as much as half a word.
    letters = len(_LETTERS.findall(start)) + 2 * len(_HAN.findall(start))
    blanks = start.count(" ")
    if letters < 2 or (letters + blanks) < 0.6 * len(start):
        return False
    return len(_CODE.findall(start)) * 12 <= max(24, len(start))


def prose_of(text: str) -> str:
    """A text without fenced code and without what a program put between its own tags."""
    if "</" in text:
        text = _without_machine(text)
    return _FENCE.sub("\n", text) if "```" in text or "~~~" in text else text


def _without_machine(text: str) -> str:
    kept: list[str] = []
    place = 0
    while (opened := _MACHINE.search(text, place)) is not None:
        closing = f"</{opened[1]}>"
        end = text.find(closing, opened.end())
        if end < 0:
            break
        kept.append(text[place : opened.start()])
        place = end + len(closing)
    return "\n".join((*kept, text[place:]))


def _machine_lines(lines: list[str]) -> frozenset[str]:
    """How lines begin that a program wrote: many begin alike, and with more than letters."""
    counts = Counter(line[:_BEGINNING] for line in lines)
    return frozenset(start for start, count in counts.items() if count >= _ALIKE and _SIGNS.search(start) is not None)


def sentences_of(text: str) -> Iterator[str]:
    """The sentences of a text as they are written, without bullets and numbers in front of them."""
    lines = prose_of(text).split("\n")
    machine = _machine_lines(lines) if len(lines) >= _ALIKE else frozenset()
    for line in lines:
        if line[:_BEGINNING] in machine or not is_prose(line):
            continue
        for piece in _END.split(_LEAD.sub("", line)):
            sentence = piece.strip() if piece else ""
            if sentence:
                yield sentence
