"""The files that a command line reads and writes, for the forms that agents use all the time."""

import re

from palimpsest.audit.patches import patched
from palimpsest.audit.touched import Touched

_LONGEST = 8_000
_TOKENS = re.compile(r"'([^']*)'|\"((?:[^\"\\]|\\.)*)\"|(&&|\|\||[|;&\n()])|(\d?>>?|<<?-?)|((?:[^\s'\"\\|;&<>()]|\\.)+)", re.DOTALL)
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_]\w*)\1([^\n]*)\n.*?^[ \t]*\2\b", re.DOTALL | re.MULTILINE)
_READERS = frozenset({"cat", "head", "tail", "nl", "bat", "less", "more", "type", "Get-Content", "gc", "tac"})
_TAKES_VALUE = frozenset({"-n", "-c", "-q", "--lines", "--bytes", "-w", "-b", "-s", "-v", "-Tail", "-TotalCount", "-i.bak"})
_SED_RANGE = re.compile(r"(\d+),(\d+)p|(\d+)p")
_PATHLIKE = re.compile(r"[^\s*?$`{}<>|;&()]*[A-Za-z0-9_][^\s*?$`{}<>|;&()]*")
_ENV = re.compile(r"[A-Za-z_]\w*=")


def shell_touches(line: str) -> tuple[Touched, ...]:
    """Each file once: read by `cat`, `sed -n` and their like, edited in place, patched, or written by a redirection."""
    if not line:
        return ()
    found: list[Touched] = []
    if "*** Begin Patch" in line:
        found += patched(line)
    text = _HEREDOC.sub(r"<<\2 \3\n", line[: _LONGEST * 2]) if "<<" in line else line
    for words in _commands(text[:_LONGEST]):
        found += _touches(words)
    return tuple({(each.path, each.how): each for each in found}.values())


def _commands(text: str) -> list[list[tuple[str, bool]]]:
    """The simple commands of a line: words, each with whether it is a redirection."""
    commands: list[list[tuple[str, bool]]] = [[]]
    for single, double, end, arrow, word in _TOKENS.findall(text):
        if end:
            commands.append([])
        elif arrow:
            commands[-1].append((arrow, True))
        else:
            commands[-1].append((single or double or word, False))
    return [words for words in commands if words]


def _touches(words: list[tuple[str, bool]]) -> list[Touched]:
    plain: list[str] = []
    found: list[Touched] = []
    arrow = ""
    for word, is_arrow in words:
        if is_arrow:
            arrow = word
        elif arrow:
            if arrow in (">", ">>", "1>", "1>>") and _is_path(word):
                found.append(Touched(word, "write" if ">>" not in arrow else "edit"))
            elif arrow == "<" and _is_path(word):
                found.append(Touched(word, "read"))
            arrow = ""
        elif plain or not _ENV.match(word):
            plain.append(word)
    if plain and plain[0] == "sudo":
        plain = plain[1:]
    if not plain:
        return found
    name = plain[0].rpartition("/")[2]
    return found + _by_program(name, plain[1:])


def _by_program(name: str, rest: list[str]) -> list[Touched]:
    if name in _READERS:
        first, last = _lines_of(name, rest)
        return [Touched(word, "read", first, last) for word in _operands(rest) if _is_path(word)]
    if name == "sed":
        return _sed(rest)
    if name == "tee":
        return [Touched(word, "write") for word in _operands(rest) if _is_path(word)]
    if name in ("open", "create", "goto") and rest and _is_path(rest[0]) and "." in rest[0]:
        return [Touched(rest[0], "write" if name == "create" else "read")]
    return []


def _sed(rest: list[str]) -> list[Touched]:
    in_place = any(word == "-i" or word.startswith(("-i", "--in-place", "-Ei", "-ni")) for word in rest)
    scripted = "-e" in rest or "-f" in rest
    operands = [word for place, word in enumerate(rest) if not word.startswith("-") and (not place or rest[place - 1] not in ("-e", "-f"))]
    # On macOS `-i` is followed by the ending of the copy, which is mostly empty.
    files = [word for word in (operands if scripted else operands[1:]) if word and _is_path(word)]
    if in_place:
        return [Touched(word, "edit") for word in files if not word.startswith("s/")]
    spread = next((found for word in rest if (found := _SED_RANGE.search(word))), None)
    if spread is None:
        return [Touched(word, "read") for word in files]
    first = _number(spread[1] or spread[3])
    return [Touched(word, "read", first, _number(spread[2] or spread[3])) for word in files]


def _lines_of(name: str, rest: list[str]) -> tuple[int | None, int | None]:
    if name != "head":
        return (0, 0) if name == "tail" else (None, None)
    joined = " ".join(rest)
    found = re.search(r"(?:-n\s*|--lines[= ]|-)(\d+)", joined)
    return 1, (_number(found[1]) if found else 10)


def _number(digits: str) -> int | None:
    return int(digits) if len(digits) < 12 else None


def _operands(rest: list[str]) -> list[str]:
    found = []
    skip = False
    for word in rest:
        if skip:
            skip = False
        elif word.startswith("-"):
            skip = word in _TAKES_VALUE
        else:
            found.append(word)
    return found


def _is_path(word: str) -> bool:
    return len(word) < 400 and _PATHLIKE.fullmatch(word) is not None and not word.isdigit() and not word.startswith(("-", "/dev/"))
