"""The patterns of permission rules: commands by their words, files by globs, and what none of them can match."""

import ast
import json
import os
import re
import shlex
import unicodedata
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from palimpsest.audit.tools.executed import program_name, word_set
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.tokens.patterns import lazy_pattern
from palimpsest.tools.files.globs import glob_expression
from palimpsest.tools.permissions.rule_names import Effect

OPEN_END: Final = ":*"
GLOB_LETTERS: Final = lazy_pattern(r"([*?\[\]{}\\])")
_PIECE: Final = lazy_pattern(r"\\(.)|'([^']*)'|\"((?:\\.|[^\"\\])*)\"|(\*)|(\s+)|(.)", re.DOTALL)
_OPERATOR: Final = lazy_pattern(r"[;|&<>()`\n]")
_ASSIGNMENT: Final = lazy_pattern(r"[A-Za-z_]\w*\+?=")
# Names of arguments, which other programs write in front of a pattern.
_FIELD: Final = lazy_pattern(r"(?:file|(?:file_|notebook_)?path|command|cmd|pattern|glob|regex|prefix|exact)\s*[:=](?!//)")
_KEYWORDS: Final = word_set("if then else elif fi for while until do done case esac function select { } [[ ]] !")
# Joins the words of a command, so that a pattern can tell a blank inside of a word from one between two.
_JOINT: Final = "\x1f"
# Options, and what may be their value, do not hide the word behind them: `git -C x push` is a `git push`.
_OPTIONS: Final = rf"(?:{_JOINT}-[^{_JOINT}]*(?:{_JOINT}[^-{_JOINT}][^{_JOINT}]*)?)*?{_JOINT}"
_OPTIONS_AT_END: Final = rf"(?:{_JOINT}-[^{_JOINT}]*(?:{_JOINT}[^-{_JOINT}][^{_JOINT}]*)?)*"
# Braces and commas that are not quoted, until it is known which of them are a choice.
_BARE: Final = {"{": "\x01", "}": "\x02", ",": "\x03"}
_CHOICE: Final = lazy_pattern("\x01([^\x01\x02]*\x03[^\x01\x02]*)\x02")
_DECISIONS: Final[dict[str, Effect]] = {"allow": "allow", "prompt": "ask", "forbidden": "deny"}


class CommandPattern(NamedTuple):
    """A command by its words, each as a regular expression; `literal` tells for each word whether it has no star."""

    words: tuple[str, ...]
    literal: tuple[bool, ...]
    open_end: bool


@lru_cache(maxsize=1_024)
def command_pattern(pattern: str) -> CommandPattern:
    """Read a command pattern. Raises `BadInput` if it can match no command, and says why."""
    text = pattern.removesuffix(OPEN_END)
    words, literal, started = [""], [True], False
    pieces: list[tuple[str, ...]] = _PIECE.findall(text)
    for escaped, single, double, star, blank, letter in pieces:
        if blank:
            words, literal, started = ([*words, ""], [*literal, True], False) if started else (words, literal, False)
            continue
        started = True
        if star:
            words[-1], literal[-1] = f"{words[-1]}.*", False
            continue
        if letter and letter in "'\"\\":
            raise BadInput("the command of the rule cannot be split into words (a quote is not closed)", where=pattern)
        if letter and _OPERATOR.match(letter):
            raise BadInput(f"a rule names one command, so `{letter}` in it matches nothing; write one rule a command", where=pattern)
        if letter == "$" or "$" in re.sub(r"\\.", "", double):
            raise BadInput("a variable in a rule matches nothing; rules go by the words as they are written", where=pattern)
        words[-1] += _BARE.get(letter) or re.escape(escaped or single or re.sub(r'\\([\\"$`])', r"\1", double) or letter)
    if not started:
        words, literal = words[:-1], literal[:-1]
    if not words:
        raise BadInput("the command of the rule has no words", where=pattern)
    if " " in words[0] and "/" not in words[0]:
        raise BadInput(f"a program has no blank in its name; leave out the quotes: {shlex.split(text)[0]}", where=pattern)
    if (field := _FIELD.match(text)) and field[0] != text:
        raise BadInput(f"the rule matches nothing; leave out `{field[0]}`", where=pattern)
    mark = re.search("[,:]", _with_choices(words[0]).replace("(?:", "")) if literal[0] and "/" not in words[0] else None
    if mark is not None:
        raise BadInput(f"a program has no `{mark[0]}` in its name, so the rule matches nothing; write one rule a command", where=pattern)
    if re.match(r"/?\^|/.*/$", text) or any(escaped.isalpha() for escaped, *_ in pieces):
        raise BadInput("a command is no regular expression; write its words, and `:*` for any further arguments", where=pattern)
    if not "".join(text.split()).isprintable() or re.match(r"\[\s*['\"]|\{[^,]*\}", text):
        raise BadInput(f"no command is written {text!a}, so the rule matches nothing; write its words", where=pattern)
    if literal[0] and _ASSIGNMENT.match(words[0]):
        raise BadInput("a rule begins with the program; leave out the variables", where=pattern)
    if text.split()[0] in _KEYWORDS:
        raise BadInput(f"`{text.split()[0]}` is a word of the shell and no program, so the rule matches nothing", where=pattern)
    return CommandPattern(tuple(map(_with_choices, words)), tuple(literal), pattern.endswith(OPEN_END))


def _with_choices(word: str) -> str:
    """A word with its bare braces as a choice, or as themselves where there is nothing to choose."""
    chosen = _CHOICE.sub(lambda found: f"(?:{found[1].replace(_BARE[','], '|')})", word)
    return "".join({mark: re.escape(letter) for letter, mark in _BARE.items()}.get(letter, letter) for letter in chosen)


def command_matches(pattern: CommandPattern, words: tuple[str, ...]) -> bool:
    """Whether a command is one that a rule allows: its words one by one, and the program exactly."""
    if len(words) < len(pattern.words) or (len(words) > len(pattern.words) and not pattern.open_end):
        return False
    return all(re.fullmatch(want, word, re.DOTALL) for want, word in zip(pattern.words, words, strict=False))


def command_restricted(pattern: CommandPattern, words: tuple[str, ...]) -> bool:
    """Whether a command is one that a rule restricts: further arguments, options in between and a folder of the program do not help."""
    text = _joined(words, pattern)
    return re.fullmatch(f"{_OPTIONS.join(_wanted(pattern))}(?:[{_JOINT}:].*)?", text, re.DOTALL | re.IGNORECASE) is not None


def command_may_become(pattern: CommandPattern, known: tuple[str, ...], glob: str = "") -> bool:
    """Whether words that are not known yet may make a command one that a rule restricts; `known` are those before the first of them.

    Where that one is a `glob`, it only becomes names that it matches.
    """
    if not known:
        return True
    text, wanted = _joined(known, pattern), _wanted(pattern)
    for count in range(1, len(wanted)):
        begun = re.fullmatch(f"{_OPTIONS.join(wanted[:count])}{_OPTIONS_AT_END}", text, re.DOTALL | re.IGNORECASE)
        if begun is not None and (not glob or _may_match(glob, wanted[count])):
            return True
    return False


def _may_match(glob: str, wanted: str) -> bool:
    """Whether a name that a glob matches can be a word of a pattern, or an option in front of it; it can unless the two are plain."""
    if glob[0] in "*?[-" or ".*" in wanted or "(?:" in wanted:
        return True
    wider = re.sub(r"\[.*", "*", glob)
    return fnmatchcase(re.sub(r"\\(.)", r"\1", wanted).casefold(), wider.casefold())


def _wanted(pattern: CommandPattern) -> tuple[str, ...]:
    # Others write ` *` for any further arguments, and `.*` as in a regular expression.
    words = tuple(word.replace(r"\..*", ".*") for word in pattern.words)
    return words[:-1] if len(words) > 1 and words[-1] == ".*" else words


def _joined(words: tuple[str, ...], pattern: CommandPattern) -> str:
    program = words[0] if "/" in pattern.words[0] else program_name(words[0])
    return _JOINT.join((program, *words[1:]))


def foreign_command(text: str, where: str) -> tuple[str, Effect | None]:
    """The command pattern of `prefix_rule(pattern=["git", ["push", "pull"]], decision="forbidden")`, and what it decides.

    Raises `BadInput` if it is not understood.
    """
    try:
        call = ast.parse(text, mode="eval").body
        given = {each.arg: ast.literal_eval(each.value) for each in call.keywords} if isinstance(call, ast.Call) else {}
        return _words_of(given["pattern"]) + OPEN_END, _DECISIONS[given["decision"]] if "decision" in given else None
    except (SyntaxError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadInput('the rule is not understood; write `prefix_rule(pattern=["rm"], decision="forbidden")`', where=where) from error


def _words_of(pattern: object) -> str:
    if not isinstance(pattern, list | tuple):
        raise TypeError(pattern)
    return " ".join(list_of_words(each) if isinstance(each, list | tuple) else shlex.quote(each) for each in pattern)


def list_of_words(choices: list[str] | tuple[str, ...]) -> str:
    """A choice of words as a pattern has it. Raises `ValueError` if a word has letters that a choice cannot hold."""
    if not choices or any(re.fullmatch(r"[\w./:=@%+-]+", each) is None for each in choices):
        raise ValueError(choices)
    return choices[0] if len(choices) == 1 else f"{{{','.join(choices)}}}"


def words_of_list(pattern: str) -> str:
    """A command that is written as a JSON list, `["git", "push"]`, as words; other patterns as they are."""
    try:
        words = json.loads(pattern) if pattern.startswith("[") else None
    except ValueError:
        return pattern
    return shlex.join(map(str, words)) if isinstance(words, list) and words else pattern


def check_path_pattern(pattern: str, where: str) -> None:
    """Raise `BadInput` if a path pattern can match no file, with the right spelling where it is known."""
    plain = re.sub(r"\\.", "__", pattern)
    parts = plain.split("/")
    wildcard = next((place for place, part in enumerate(parts) if GLOB_LETTERS.search(part)), len(parts))
    reason = ""
    if not pattern.isprintable():
        reason = "a path has no control characters"
    elif re.search(r"\\(?:[A-Za-z0-9]|$)|[^/]\\\.|\\\\|\\\*+$", pattern):
        reason = f"folders are separated by `/`, and a dot needs no `\\`: {re.sub(r'^[A-Za-z]:', '/', pattern.replace(chr(92), '/'))}"
    elif plain[0] in "'\"`" and plain[-1] == plain[0]:
        reason = f"leave out the quotes: {pattern[1:-1]}"
    elif plain[0] + plain[-1] == "()" or re.match(r"\[\s*['\"]", plain):
        reason = "write the path alone, and `\\(` or `\\[` for a bracket itself"
    elif field := _FIELD.match(plain):
        reason = f"leave out `{field[0]}`"
    elif plain[0] == "^" or plain[-1] == "$":
        reason = "a path is no regular expression; `*` stands for any letters, `**` for any folders"
    elif re.search(r"[@+?*]\(", plain):
        reason = "a choice is written in braces, `{a,b}`; and `\\(` is a bracket itself"
    elif "|" in plain:
        reason = f"a choice is written in braces: {{{pattern.replace('|', ',')}}}; and `\\|` is the letter itself"
    elif plain[0] == "!":
        reason = "a rule cannot be negated; write a second rule that allows the file"
    elif re.match(r"\$\{?\w|%\w+%", plain):
        reason = "variables are not expanded; write `~/` for your home folder, `./` for the project, and `\\$` for the letter itself"
    elif re.match(r"[A-Za-z]:/", plain):
        reason = f"there are no drives; write `/{plain[2:]}`, or `./{plain}` for a folder of this name"
    elif plain.endswith(OPEN_END):
        reason = f"`{OPEN_END}` is for commands; write `{plain.removesuffix(OPEN_END)}*`"
    elif re.search(r"\[[!^]?\[:\w+:\]", plain):
        reason = "a class names its letters, such as `[a-z]`"
    elif re.match(r"~[^/]", plain):
        reason = "the home folder is written `~/`; name that of another user by its path, `//home/NAME`"
    elif re.match(r"[A-Za-z][\w+.-]*://", plain):
        reason = "a path is no address; write an absolute path with two slashes, `//home/NAME`"
    elif _is_list(plain):
        reason = "one rule has one pattern; write the others as rules of their own, and `\\,` for a comma itself"
    elif re.search(r"\[[^\]]*$", re.sub(r"\[[!^]?\]?[^\]/]*\]", "", plain)):
        reason = "a class is not closed; write `\\[` for a bracket itself"
    elif ".." in parts[wildcard:]:
        reason = "`..` behind a wildcard matches nothing"
    if reason:
        raise BadInput(f"the pattern can match no file: {reason}", where=where)
    try:
        re.compile(glob_expression(pattern))
    except (PalimpsestError, re.error) as error:
        raise BadInput(f"the pattern cannot be read: {getattr(error, 'message', error)}", where=where) from error


def _is_list(pattern: str) -> bool:
    """Whether a pattern looks like several: parentheses that end before they begin, or a comma that is not in braces."""
    depth = [pattern[: place + 1].count("(") - pattern[: place + 1].count(")") for place in range(len(pattern))]
    return min(depth) < 0 or depth[-1] != 0 or ";" in pattern or "," in re.sub(r"\{[^{}]*\}", "", re.sub(r"\{[^{}]*\}", "", pattern))


def escaped_path(path: str) -> str:
    """The pattern that matches exactly one path, and what lies in it."""
    return re.sub(r"([*?\[\]{}\\(),|])", r"\\\1", path)


class PathForm(NamedTuple):
    """One way to read a path pattern: a glob of absolute paths, or of paths in the project."""

    glob: str
    absolute: bool = False
    floating: bool = False


def path_forms(pattern: str, *, wide: bool, root: Path | None, home: Path | None) -> Iterator[PathForm]:
    """The ways to read a path pattern; `wide` is how a rule that restricts is read.

    `//x` and `~/x` are absolute; `/x` is absolute or in the project; `./x` and `x/y` are in the project; `x` alone is in every folder of
    it if the rule restricts, and else at its top. A beginning without wildcards that leads through a link is followed too.
    """
    inside = pattern.removeprefix("/") if pattern.startswith("/") else pattern
    forms: list[PathForm] = []
    if pattern.startswith("//"):
        forms.append(PathForm(_normal(f"/{pattern.lstrip('/')}"), absolute=True))
    elif pattern == "~" or pattern.startswith("~/"):
        forms.append(PathForm(_normal(f"{escaped_path(str(home or Path.home()))}{pattern[1:]}"), absolute=True))
    else:
        if pattern.startswith("/"):
            forms.append(PathForm(_normal(pattern), absolute=True))
        normal = _normal(inside)
        if normal == ".." or normal.startswith("../"):
            if root is not None:
                forms.append(PathForm(_normal(f"{escaped_path(str(root))}/{inside}"), absolute=True))
        else:
            forms.append(PathForm(normal, floating=wide and "/" not in pattern.rstrip("/")))
    for form in forms:
        yield form
        if wide and root is not None and (followed := _followed(form, root)) is not None:
            yield followed


def _normal(glob: str) -> str:
    """A pattern without `.`, empty and, where they are certain, `..` parts; the project itself is an empty one."""
    found = os.path.normpath(glob) if glob else "."
    return "" if found == "." else re.sub("^//", "/", found)


def _followed(form: PathForm, root: Path) -> PathForm | None:
    """The form with the links at its beginning followed; `None` if there are none."""
    start = literal_start(form.glob)
    if not start:
        return None
    lexical = os.path.join(root, start)  # noqa: PTH118  # of texts, of which one may be absolute
    real = os.path.realpath(lexical)
    return None if real == lexical else PathForm(escaped_path(real) + form.glob[len(start) :], absolute=True)


def literal_start(glob: str) -> str:
    """The folders at the beginning of a pattern that have no wildcards."""
    parts = glob.split("/")
    count = next((place for place, part in enumerate(parts) if GLOB_LETTERS.search(part)), len(parts))
    return "/".join(parts[:count])


@lru_cache(maxsize=2_048)
def path_expression(form: PathForm, *, wide: bool) -> re.Pattern[str]:
    """The compiled expression of a form. A folder stands for all that lies in it."""
    glob = form.glob.rstrip("/")
    if wide and glob.endswith("/**"):
        glob = glob[:-3]
    # `**/x` is meant for granted folders too, whose files are known by their absolute paths.
    before = "(?:.*/)?" if form.floating else "/?" if wide and glob.startswith("**/") else ""
    # Some file systems ignore case, so a rule that restricts does too.
    body = glob_expression(unicodedata.normalize("NFC", glob) if wide else glob) if glob else "[^/]*"
    return re.compile(f"{before}{body}(?:/.*)?", re.DOTALL | (re.IGNORECASE if wide else re.NOFLAG))


def names_folder(pattern: str) -> bool:
    """Whether a pattern is one place in the project or on the disk without wildcards, or all that lies in it."""
    return "/" in pattern.rstrip("/") and not GLOB_LETTERS.search(pattern.rstrip("/").removesuffix("/**"))
