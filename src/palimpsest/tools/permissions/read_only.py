"""Commands that only read: a table of programs with the options that are known to neither write nor start anything."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Literal, TypeAlias

from palimpsest.audit.tools.executed import program_name, word_set
from palimpsest.tools.permissions.command_line import LineCommand, Word

Operands: TypeAlias = Literal["paths", "texts", "pattern", "none"]
"""What the operands of a program are: paths that it reads, texts, a pattern and then paths, or it takes none."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a program that are safe. `letters` are short flags, `valued` the options of any length that take a value."""

    operands: Operands = "paths"
    letters: str = ""
    valued: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()
    number: bool = False
    most: int = 10_000
    unknown: bool = False
    """Whether an operand may be one that only the shell knows."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """The operands of a command, and the options that it has."""

    operands: tuple[Word, ...]
    options: tuple[str, ...]


def parse_options(words: tuple[Word, ...], options: Options) -> Parsed | None:
    """The options and operands of a command without its program; `None` if an option is not among the safe ones.

    A glob becomes as many words as files match it. As the value of an option it is listed among the operands too, which is what all but
    the first of them are.
    """
    operands: list[Word] = []
    found: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        text, at = word.text, at + 1
        if text == "--" and word.static:
            operands += words[at:]
            break
        if _may_be_option(word) and not options.unknown:
            return None
        if not text.startswith("-") or text == "-" or not word.static:
            operands.append(word)
        elif options.number and text[1:].isdecimal():
            found.append("-number")
        else:
            taken = _option(text, options, found)
            # An option whose value is optional would leave the next word to be read as an option.
            if taken is None or (taken and (at >= len(words) or _may_be_option(words[at]) or words[at].text.startswith("-"))):
                return None
            operands += (value for value in words[at : at + taken] if value.glob)
            at += taken
    return Parsed(tuple(operands), tuple(found))


def _may_be_option(word: Word) -> bool:
    """Whether a word may turn out to begin with a dash: one that only the shell knows, or a file name that a glob finds."""
    return not word.static or (word.glob and word.text[:1] in "*?[")


def _option(text: str, options: Options, found: list[str]) -> int | None:
    """How many further words an option takes; `None` if it is not safe."""
    name, equals, _ = text.partition("=")
    if text in options.flags or (equals and name in options.valued and text.startswith("--")):
        found.append(name)
        return 0
    if text in options.valued:
        found.append(text)
        return 1
    if text.startswith("--"):
        return None
    for place, letter in enumerate(text[1:], 1):
        found.append(f"-{letter}")
        if f"-{letter}" in options.valued:
            return int(place == len(text) - 1)
        if letter not in options.letters:
            return None
    return 0


def _paths(command: LineCommand, options: Options) -> tuple[Word, ...] | None:
    parsed = parse_options(command.words[1:], options)
    if parsed is None or len(parsed.operands) > options.most or (options.most == 1 and any(word.glob for word in parsed.operands)):
        return None
    match options.operands:
        case "paths":
            return parsed.operands
        case "texts":
            return ()
        case "none":
            return None if parsed.operands else ()
        case "pattern":
            given = {"-e", "--regexp", "--files"} & set(parsed.options)
            # Of the files that a glob finds only the first is the pattern.
            several = bool(parsed.operands) and parsed.operands[0].glob
            return parsed.operands if given or several else parsed.operands[1:]


_FIND_TESTS: Final = word_set(
    "-name -iname -path -ipath -wholename -regex -iregex -type -size -mtime -mmin -atime -amin -ctime -cmin -maxdepth -mindepth -perm "
    "-user -group -links -inum -printf"
)
_FIND_FLAGS: Final = word_set(
    "-empty -print -print0 -prune -not -o -or -a -and ! ( ) , -depth -xdev -mount -ls -readable -writable -quit -true"
)
_SED_PRINTS: Final = re.compile(r"(?:\d+|\$)(?:,(?:\d+|\$))?p(?:;(?:\d+|\$)(?:,(?:\d+|\$))?p)*")


def _find(command: LineCommand) -> tuple[Word, ...] | None:
    words = command.words[2:] if command.texts[1:2] == ("-P",) else command.words[1:]
    if not all(word.static for word in words):
        return None
    start = next((place for place, word in enumerate(words) if word.text[:1] in ("-", "(", "!")), len(words))
    at = start
    while at < len(words):
        if words[at].glob:
            return None
        if words[at].text in _FIND_TESTS:
            # Further files that a glob finds are an error, unless one is named as an action is; none has a dot in its name.
            if any(word.glob and word.text[:1] in "*?[-" and "." not in word.text for word in words[at + 1 : at + 2]):
                return None
            at += 2
        elif words[at].text in _FIND_FLAGS:
            at += 1
        else:
            return None
    paths = words[:start]
    return None if any(word.glob and word.text[:1] in "*?[" for word in paths) else paths


def _sed(command: LineCommand) -> tuple[Word, ...] | None:
    """Only `sed -n` that prints lines by number: other commands of its language write and run programs."""
    match command.texts:
        case ("sed", "-n", script, *rest) if _SED_PRINTS.fullmatch(script) and not any(
            word.startswith(("-", "*", "?", "[")) for word in rest
        ):
            return command.words[3:] if all(word.static for word in command.words) else None
    return None


def _printf(command: LineCommand) -> tuple[Word, ...] | None:
    # `printf -v` assigns, and a subscript in its name is evaluated.
    first = command.words[1:2]
    return () if first and not _may_be_option(first[0]) and not first[0].text.startswith("-") else None


def _date(command: LineCommand) -> tuple[Word, ...] | None:
    rest = command.words[1:]
    return () if all(word.static and (word.text.startswith("+") or word.text in ("-u", "-Is", "-R")) for word in rest) else None


def _where(command: LineCommand) -> tuple[Word, ...] | None:
    """`command -v` and `type`, which print where a program is."""
    match command.texts:
        case ("command", "-v" | "-V", *names) | ("type", *names) if not any(name.startswith("-") for name in names):
            return ()
    return None


_VERSION: Final = frozenset({("--version",), ("-V",)})


def _version(command: LineCommand) -> tuple[Word, ...] | None:
    return () if command.texts[1:] in _VERSION else None


_GREP: Final = Options(
    "pattern",
    "ivnclLoqshHwxEFGPraIbzZ",
    word_set("-e -m -A -B -C --regexp --max-count --after-context --before-context --context --include --exclude --exclude-dir --color"),
    word_set(
        "--ignore-case --invert-match --line-number --count --files-with-matches --files-without-match --only-matching --quiet "
        "--no-messages --word-regexp --line-regexp --extended-regexp --fixed-strings --perl-regexp --recursive "
        "--text --no-filename --with-filename --color"
    ),
    number=True,
)
_RIPGREP: Final = Options(
    "pattern",
    "iSsvnNclowxFUPua0pqHI",
    word_set(
        "-e -g -t -T -A -B -C -m -M -d -r -j --regexp --glob --iglob --type --type-not --after-context --before-context --context "
        "--max-count --max-columns --max-depth --replace --sort --sortr --color --colors --threads"
    ),
    word_set(
        "--files --hidden --no-ignore --no-ignore-vcs --count --count-matches --files-with-matches --files-without-match --json --heading "
        "--no-heading --line-number --no-line-number --stats --multiline --fixed-strings --word-regexp --line-regexp --ignore-case "
        "--smart-case --case-sensitive --column --trim --only-matching --pcre2 --with-filename --no-filename --quiet --invert-match --null"
    ),
)
_DIGEST: Final = Options(letters="bt")
_OPTIONS: Final[Mapping[str, Options]] = {
    "cat": Options(letters="AbeEnstTuv", flags=word_set("--number --show-all")),
    "head": Options(letters="qvz", valued=word_set("-n -c --lines --bytes"), number=True),
    "tail": Options(letters="qvz", valued=word_set("-n -c --lines --bytes"), number=True),
    "wc": Options(letters="cmlwL", flags=word_set("--lines --words --bytes --chars")),
    "ls": Options(
        letters="aAlhtrR1SFdispGngocuXQUBN",
        valued=word_set("--color --sort --time --format"),
        flags=word_set("--all --almost-all --human-readable --recursive --reverse --color --group-directories-first --full-time"),
    ),
    "tree": Options(letters="adfFihpsDnCv", valued=word_set("-L -I -P"), flags=word_set("--noreport --dirsfirst --gitignore")),
    "stat": Options(letters="Lt", valued=word_set("-c --format")),
    "file": Options(letters="bi", flags=word_set("--brief --mime --mime-type")),
    "du": Options(
        letters="hsackmbx", valued=word_set("-d --max-depth"), flags=word_set("--human-readable --summarize --total --apparent-size")
    ),
    "df": Options(letters="hTkmi"),
    "sort": Options(
        letters="bdfghiMnrRuVscCz", valued=word_set("-k -t --key --field-separator"), flags=word_set("--reverse --unique --numeric-sort")
    ),
    "uniq": Options(letters="cduiz", valued=word_set("-f -s -w"), most=1),
    "cut": Options(letters="sz", valued=word_set("-d -f -c -b --delimiter --fields --characters"), flags=word_set("--complement")),
    "nl": Options(letters="p", valued=word_set("-b -w -s -v -i -n")),
    "tac": Options(),
    "rev": Options(),
    "fold": Options(letters="bs", valued=word_set("-w")),
    "paste": Options(letters="sz", valued=word_set("-d")),
    "comm": Options(letters="123iz"),
    "diff": Options(
        letters="uqbwBiyEatN", valued=word_set("-U -W --unified --width --label --color"), flags=word_set("--brief --unified --color")
    ),
    "cmp": Options(letters="lsb"),
    "od": Options(letters="bcdxv", valued=word_set("-A -t -N -j")),
    "realpath": Options(letters="emsz"),
    "readlink": Options(letters="efmnz"),
    "md5sum": _DIGEST,
    "sha1sum": _DIGEST,
    "sha256sum": _DIGEST,
    "sha512sum": _DIGEST,
    "cksum": Options(),
    "grep": _GREP,
    "egrep": _GREP,
    "fgrep": _GREP,
    "rg": _RIPGREP,
    "tr": Options("texts", "dscCt"),
    "seq": Options("texts", "w", word_set("-s -f"), number=True),
    "basename": Options("texts", "az", word_set("-s")),
    "dirname": Options("texts", "z"),
    "which": Options("texts", "a"),
    "echo": Options("texts", "neE", unknown=True),
    "true": Options("texts", unknown=True),
    "false": Options("texts", unknown=True),
    ":": Options("texts", unknown=True),
    "pwd": Options("none", "LP"),
    "whoami": Options("none"),
    "id": Options("none", "ugnGr"),
    "uname": Options("none", "asnrvmpio"),
    "nproc": Options("none"),
    "arch": Options("none"),
}
READERS: Final = frozenset(_OPTIONS)
_SPECIAL: Final[Mapping[str, Callable[[LineCommand], tuple[Word, ...] | None]]] = {
    "find": _find,
    "sed": _sed,
    "printf": _printf,
    "date": _date,
    "type": _where,
    "command": _where,
    **dict.fromkeys(("python", "python3", "node", "bash", "gcc", "clang", "make"), _version),
}
PLAIN: Final = word_set("mkdir rmdir touch cp mv rm ln link unlink chmod tee truncate mktemp sleep")
"""Programs that change files and start no other program, whatever their arguments are."""
PRINTERS: Final = frozenset({"echo", "true", "false", ":", "printf"})
"""Programs that only print their arguments, if anything."""
BUILTINS: Final = PRINTERS | {"pwd", "type", "command", "cd"}
"""Programs that bash runs itself, so that no file of the search path can take their place."""


def paths_read(command: LineCommand) -> tuple[Word, ...] | None:
    """The paths that a command reads if it is known to do nothing but read and print; `None` if it may do more.

    A program or an option that is not in the table may do more. Redirections and variables are not judged here.
    """
    name = command.words[0]
    if not name.static or name.glob:
        return None
    options = _OPTIONS.get(name.text)
    if options is not None:
        return _paths(command, options)
    special = _SPECIAL.get(name.text)
    return special(command) if special is not None else None


def keeps_settings(command: LineCommand) -> bool:
    """Whether a command is known to leave the settings and variables of the shell as they are: it is a program, or only reads."""
    name = command.texts[0] if command.words and command.words[0].static else ""
    known = name in _OPTIONS or name in PLAIN or name in ("git", "cd", "find", "sed") or not command.words
    return not command.assignments and (known or paths_read(command) is not None)


def searches_folders(command: LineCommand) -> bool | None:
    """Whether a program that reads goes through folders by itself; `None` if its options are not known."""
    name = program_name(command.texts[0])
    if name not in SEARCHERS:
        return False
    if paths_read(command) is None:
        return None
    parsed = parse_options(command.words[1:], _OPTIONS[name])
    return name in ("rg", "diff") or parsed is None or bool({"-r", "--recursive"} & set(parsed.options))


def lists_names(command: LineCommand) -> bool:
    """Whether a command is a search that prints the names of all files in place of lines."""
    parsed = parse_options(command.words[1:], _RIPGREP)
    return program_name(command.texts[0]) == "rg" and parsed is not None and "--files" in parsed.options


def searched_names(command: LineCommand) -> Callable[[str], bool]:
    """Which files of a folder a program reads, by their names: all, but of `grep --include=GLOB` those that one of the globs matches."""
    globs = [word.text.removeprefix("--include=") for word in command.words if word.text.startswith("--include=")]
    others = any(word.text.startswith("--") and not word.text.startswith("--include=") for word in command.words)
    if (
        not globs
        or others
        or not all(re.fullmatch(r"[\w.*-]+", glob) for glob in globs)
        or not program_name(command.texts[0]).endswith("grep")
    ):
        return bool
    return lambda name: any(fnmatchcase(name, glob) for glob in globs)


SEARCHERS: Final = word_set("grep egrep fgrep rg diff")
"""Programs that can read all files of a folder."""


def is_reader(name: str) -> bool:
    """Whether a program prints the files that its arguments name."""
    options = _OPTIONS.get(name)
    return name == "sed" or (options is not None and options.operands in ("paths", "pattern") and name not in _LISTERS)


_REPLACED: Final = r"s(?P<mark>[/|#,])(?:\\.|(?!(?P=mark)).)*(?P=mark)(?:\\.|(?!(?P=mark)).)*(?P=mark)[gipI\d]*"
_SUBSTITUTION: Final = re.compile(rf"(?:\d+(?:,\d+)?)?(?:{_REPLACED}|d|p)", re.DOTALL)


def substitutes(command: LineCommand) -> bool:
    """Whether a command is `sed` with one script that only replaces, deletes or prints lines of the files that are named."""
    texts = [word.text for word in command.words[1:] if word.text not in ("-n", "-E", "-r", "-e", "-i")]
    return program_name(command.texts[0]) == "sed" and bool(texts) and _SUBSTITUTION.fullmatch(texts[0]) is not None


_LISTERS: Final = word_set("ls tree stat file du df realpath readlink")
