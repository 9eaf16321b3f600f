"""Tables of programs and git commands that only read, and whether a repository's configuration can start a program."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Literal, TypeAlias

from palimpsest.audit.shell_lines import program_name, word_set
from palimpsest.coding.shell_lines import LineCommand, Word
from palimpsest.core.text import lazy_pattern

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


_SHOWS: Final = word_set(
    "--stat --name-only --name-status --oneline --no-color --color --numstat --shortstat --summary --patch --graph --decorate --all "
    "--follow --first-parent --no-merges --merges --reverse --word-diff --find-renames --no-renames --no-ext-diff --no-textconv "
    "--abbrev-commit --ignore-all-space --ignore-space-change --topo-order --date-order --no-patch --quiet --exit-code --check --raw "
    "--full-index --minimal --patience --histogram --branches --tags --remotes --full-history --left-right --cherry-pick --dirstat"
)
_SHOWS_VALUED: Final = word_set(
    "-n -S -G -L -U --max-count --skip --since --until --after --before --author --committer --grep --format --pretty --date --unified "
    "--diff-filter --abbrev --word-diff --stat --color --find-renames --decorate --diff-algorithm"
)
_SHOW: Final = Options("texts", "puswbiEFMCzqRacm", _SHOWS_VALUED, _SHOWS, number=True)
_SUBCOMMANDS: Final[Mapping[str, Options]] = {
    "status": Options(
        "texts",
        "sbzv",
        word_set("--untracked-files --ignored --porcelain"),
        word_set("--short --branch --porcelain --long --show-stash --ignored --no-renames -uno -unormal -uall -u"),
    ),
    "diff": Options("texts", _SHOW.letters, _SHOWS_VALUED, _SHOWS | {"--cached", "--staged", "--merge-base"}, number=True),
    "log": _SHOW,
    "show": _SHOW,
    "shortlog": Options("texts", "snec", word_set("--since --until"), word_set("--summary --numbered --email")),
    "blame": Options("texts", "wCMelstfn", word_set("-L --date"), word_set("--show-email --line-porcelain --porcelain")),
    "ls-files": Options(
        "texts", "comdszt", frozenset(), word_set("--others --cached --exclude-standard --modified --deleted --stage --ignored")
    ),
    "ls-tree": Options("texts", "rdtlz", frozenset(), word_set("--name-only --name-status --full-tree --full-name --long")),
    "rev-parse": Options(
        "texts",
        "q",
        word_set("--abbrev-ref --short"),
        word_set("--abbrev-ref --short --show-toplevel --is-inside-work-tree --git-dir --verify --show-prefix --symbolic-full-name"),
    ),
    "rev-list": Options(
        "texts", "n", word_set("--max-count --since --until"), word_set("--count --all --no-merges --merges --first-parent --reverse")
    ),
    "merge-base": Options("texts", "a", frozenset(), word_set("--all --is-ancestor --octopus")),
    "describe": Options("texts", "", word_set("--match --abbrev"), word_set("--tags --always --all --long --exact-match --dirty")),
    "cat-file": Options("texts", "pets"),
    "grep": Options(
        "texts",
        "niIlLcwEFGPohHvqap",
        word_set("-e -A -B -C --max-depth"),
        word_set("--cached --line-number --count --heading --break"),
        number=True,
    ),
    "branch": Options(
        "none", "arv", word_set("--contains --merged --no-merged --sort --points-at"), word_set("--list --all --remotes --show-current -vv")
    ),
}
_EXACT: Final = frozenset(
    {
        ("git", "remote"),
        ("git", "remote", "-v"),
        ("git", "stash", "list"),
        ("git", "tag"),
        ("git", "tag", "-l"),
        ("git", "tag", "--list"),
        ("git", "worktree", "list"),
        ("git", "--version"),
    }
)

# Options with which `log`, `show` and `diff` print contents or search in them, and those with which they print names or numbers instead.
_PATCH: Final = word_set("-p -u -c -m -U -L -R -S -G --find-object --patch --unified --word-diff --check --follow")
_NAMES: Final = word_set("-s -q --stat --name-only --name-status --numstat --shortstat --summary --raw --no-patch --quiet --dirstat")
_NO_CONTENT: Final = word_set("shortlog ls-files ls-tree rev-parse rev-list merge-base describe branch remote stash tag worktree --version")
_COMMIT: Final = re.compile(r"(?:HEAD|@)(?:[~^]\d*)*")
_CHANGING: Final = word_set(
    "add commit checkout switch restore branch tag mv rm push pull fetch merge rebase reset cherry-pick revert init clone remote clean"
)
_PRINTING: Final = word_set("-p -v -vv --patch --verbose --interactive -i")
# A colon also begins a search for a commit, `:/text`, and stands in a date, `@{12:00}`.
_BLOB: Final = re.compile(r"(?:[\w.~^@+-][\w./~^@+-]*)?:(?:\d:)?[^:/].*", re.DOTALL)
_PLAIN_PATH: Final = re.compile(r"[^:*?\[\]{}\\]+")
GitShows: TypeAlias = tuple[str, ...] | Literal["anything", "index"]
"""What a git command can print of files: these paths (`:PATH` is one from the top), any file of any time, or files of the index."""


def git_shows(command: LineCommand) -> GitShows:
    """What contents a git command that only reads can print. A blob is also named by its digest, so names of commits must be certain."""
    words = _without_pager(command)
    name, rest = (words[0].text, words[1:]) if words else ("", ())
    texts = [word.text for word in rest]
    options = _SUBCOMMANDS.get(name)
    parsed = parse_options(rest, options) if options is not None else None
    given = frozenset(() if parsed is None else parsed.options)
    operands = () if parsed is None else tuple(word.text for word in parsed.operands)
    paths = tuple(texts[texts.index("--") + 1 :]) if "--" in texts else ()
    before = operands[: len(operands) - len(paths)]
    if name in _NO_CONTENT:
        return ()
    if parsed is None:
        return "anything"
    match name:
        case "status":
            return "anything" if "-v" in given else ()
        case "log" if not given & _PATCH:
            return ()
        case "diff" if given & _NAMES and not given & _PATCH:
            return ()
        case "show" if given & _NAMES and not given & _PATCH and all(map(_COMMIT.fullmatch, before)):
            return ()
        case "cat-file" if given and not given - {"-t", "-s", "-e"}:
            return ()
        case "show" | "cat-file" if operands and all(map(_BLOB.fullmatch, operands)) and not paths:
            return tuple(map(_blob_path, operands))
        case "diff" if not operands and not given & {"--cached", "--staged", "--merge-base"}:
            return "index"
        case "blame" if operands:
            return paths or operands
        case "log" | "diff" | "show" if paths and not given & {"-L", "--follow"} and all(map(_PLAIN_PATH.fullmatch, paths)):
            # `show` prints a blob whatever paths follow it.
            return paths if name != "show" or all(map(_COMMIT.fullmatch, before)) else "anything"
        case "log" | "diff" if not given & {"-L", "--follow"} and all(map(_PLAIN_PATH.fullmatch, operands)):
            # Git takes no word that names both a commit and a file, so that files need no dashes in front of them.
            return operands[bool(_COMMIT.fullmatch(operands[0])) :] or "anything" if operands else "anything"
    return "anything"


def git_prints_no_file(command: LineCommand) -> bool:
    """Whether a git command that changes something prints no content of files."""
    texts = [word.text for word in _without_pager(command)]
    if not texts or not all(word.static for word in command.words) or any(text in _PRINTING for text in texts):
        return False
    return texts[0] in _CHANGING or texts[:2] in (["stash"], ["stash", "push"], ["stash", "pop"], ["stash", "apply"], ["stash", "drop"])


def _blob_path(operand: str) -> str:
    """The path of `REVISION:PATH`, or of `:STAGE:PATH` in the index, with a colon in front if it counts from the top."""
    path = re.sub(r"^\d:", "", operand.partition(":")[2])
    return path if path.startswith(("./", "../")) else f":{path}"


def _without_pager(command: LineCommand) -> tuple[Word, ...]:
    words = command.words[1:]
    while words and words[0] == Word("--no-pager"):
        words = words[1:]
    return words


def git_reads(command: LineCommand) -> bool:
    """Whether a git command does nothing but read, as far as its words show: the settings of the repository may start programs."""
    words = _without_pager(command)
    if not all(word.static for word in words):
        return False
    texts = ("git", *(word.text for word in words))
    if texts in _EXACT:
        return True
    options = _SUBCOMMANDS.get(texts[1]) if len(texts) > 1 else None
    parsed = parse_options(words[1:], options) if options is not None else None
    if options is None or parsed is None:
        return False
    # A placeholder for the state of a signature starts the program that checks it.
    return not any("%G" in text for text in texts) and _operands_fit(texts, options, parsed)


def _operands_fit(texts: tuple[str, ...], options: Options, parsed: Parsed) -> bool:
    if options.operands == "none":
        return not parsed.operands
    # Outside a repository, and with paths outside of it, `git diff` compares any two files.
    return texts[1] not in ("diff", "grep") or not any(map(_leads_away, texts))


def _leads_away(text: str) -> bool:
    return text.startswith(("/", "~")) or ".." in text.split("/")


_LARGEST: Final = 100_000
_LARGEST_INDEX: Final = 64_000_000
_DEEPEST: Final = 4
# The mode of an index entry that stands for a commit of another repository.
_GITLINK: Final = b"\x00\x00\xe0\x00"
_SECTION: Final = lazy_pattern(r'\[\s*([A-Za-z0-9.-]+)\s*(?:"[^"\\\n]*"\s*)?\]')
_SETTING: Final = lazy_pattern(r"([A-Za-z][A-Za-z0-9-]*)\s*(?:=.*)?")
_CONTINUED: Final = lazy_pattern(r"\\$")
_CORE: Final = frozenset(
    {
        *("repositoryformatversion", "filemode", "bare", "logallrefupdates", "ignorecase", "precomposeunicode", "symlinks", "autocrlf"),
        *("eol", "safecrlf", "quotepath", "abbrev", "longpaths", "trustctime", "untrackedcache", "preloadindex"),
    }
)
_SETTINGS: Final[dict[str, frozenset[str]]] = {
    "core": _CORE,
    "remote": frozenset({"url", "pushurl", "fetch", "push", "tagopt", "prune", "gh-resolved"}),
    "branch": frozenset({"remote", "merge", "rebase", "description", "pushremote", "gh-merge-base", "vscode-merge-base"}),
    "user": frozenset({"name", "email", "signingkey"}),
    "submodule": frozenset({"active", "url"}),
    "init": frozenset({"defaultbranch"}),
    "pull": frozenset({"rebase", "ff"}),
    "push": frozenset({"default", "autosetupremote"}),
    "fetch": frozenset({"prune"}),
    "color": frozenset({"ui", "diff", "status", "branch"}),
    "gc": frozenset({"auto", "autodetach"}),
    "maintenance": frozenset({"auto"}),
    "commit": frozenset({"gpgsign"}),
    "tag": frozenset({"gpgsign"}),
    "extensions": frozenset({"objectformat", "refstorage"}),
}


def git_only_reads(folder: Path) -> bool:
    """Whether git commands that read start no program of the repository that a folder belongs to, or there is no repository.

    Git runs what `core.fsmonitor`, `diff.*.textconv`, `filter.*.clean` and others name in `.git/config`, which an archive or a command
    can bring along, so every setting must be one that is known to start nothing. It also looks into nested repositories that the index
    names, by their own configuration.
    """
    try:
        return _only_reads(folder.resolve())
    except (OSError, RuntimeError, UnicodeError, ValueError, IndexError):
        return False


def _only_reads(folder: Path) -> bool:
    for place in (folder, *folder.parents):
        # Git takes a folder of this shape for a bare repository, with a configuration of its own.
        if _there(place / "HEAD") and any(_there(place / name) for name in ("objects", "commondir")):
            return False
        entry = place / ".git"
        if entry.is_dir():
            if not _plain(entry):
                return False
            # Git goes on above a folder that only has the name of a repository.
            if _there(entry / "HEAD") and _there(entry / "objects"):
                return _nested_are_plain(place, entry)
        elif entry.exists() or entry.is_symlink():
            return _linked(entry)
    return True


def _there(path: Path) -> bool:
    """Whether there is a name: for git, a link to nothing is a HEAD too."""
    return os.path.lexists(path)


def _linked(entry: Path, depth: int = 0) -> bool:
    """The check for a work tree or submodule, whose `.git` is a file that names the folder."""
    folder = _git_folder(entry)
    common = folder / "commondir"
    shared = (folder / _bounded(common).rstrip("\r\n")).resolve() if common.is_file() else folder
    # A submodule names its work tree, which matters only to commands that run in it.
    plain = _plain(folder, nested=depth > 0) if shared == folder else _plain(shared) and _hooks_are_quiet(folder)
    return plain and _nested_are_plain(entry.parent, folder, depth)


def _git_folder(entry: Path) -> Path:
    """The folder that a file `.git` names. Only line ends are no part of the name. Raises `ValueError` if it names none."""
    text = _bounded(entry)
    if not text.startswith("gitdir: "):
        raise ValueError(entry)
    return (entry.parent / text.removeprefix("gitdir: ").rstrip("\r\n")).resolve()


def _plain(folder: Path, *, nested: bool = False) -> bool:
    config = folder / "config"
    return (
        _hooks_are_quiet(folder)
        and not (folder / "config.worktree").exists()
        # Git reads the configuration of the folder that this file names instead.
        and not (folder / "commondir").exists()
        and (not config.exists() or _starts_nothing(_bounded(config), nested=nested))
    )


def _nested_are_plain(place: Path, folder: Path, depth: int = 0) -> bool:
    """Whether the repositories that the index of a git folder names start nothing; `status` and `diff` ask each of them."""
    if any(folder.glob("sharedindex.*")):
        return False
    for name in gitlinks(folder / "index"):
        entry = place / name / ".git"
        if entry.is_symlink() or depth >= _DEEPEST:
            return False
        if entry.is_dir():
            if not (_plain(entry) and _nested_are_plain(entry.parent, entry, depth + 1)):
                return False
        elif entry.exists() and not _linked(entry, depth + 1):
            return False
    return True


def gitlinks(index: Path) -> tuple[str, ...]:
    """The paths of nested repositories in an index file; none if there is no such file. Raises `ValueError` if it is not understood."""
    data = _index_bytes(index)
    # Most repositories have none, and searching is a hundred times faster than reading the entries.
    if _GITLINK not in data:
        return ()
    return tuple(name for mode, name in _index_entries(data, index) if mode == _GITLINK)


def follows_no_link(folder: Path) -> bool:
    """Whether all files of the index lie in real folders of the work tree: `git grep` would follow a link that took the place of one."""
    try:
        place = next((each for each in (folder, *folder.parents) if (each / ".git").is_file() or repository_of(each) == each), None)
        if place is None:
            return True
        entry = place / ".git"
        index = (entry if entry.is_dir() else _git_folder(entry)) / "index"
        entries = _index_entries(data, index) if (data := _index_bytes(index)) else ()
        folders = {name.rpartition("/")[0] for _, name in entries}
        return not any(index.parent.glob("sharedindex.*")) and all(os.path.realpath(place / each) == str(place / each) for each in folders)
    except (OSError, ValueError, IndexError, UnicodeError):
        return False


def tracked_files(folder: Path) -> tuple[Path, ...] | None:
    """The files in the index of the repository or work tree that a folder belongs to, none outside; `None` if it is not understood."""
    top = repository_of(folder)
    try:
        if top is not None:
            git = top / ".git"
        elif pointer := next((each / ".git" for each in (folder, *folder.parents) if (each / ".git").is_file()), None):
            top, git = pointer.parent, pointer.parent / _bounded(pointer).removeprefix("gitdir: ").rstrip("\n")
        else:
            return None if any((each / ".git").is_symlink() for each in (folder, *folder.parents)) else ()
        index = git / "index"
        if not _there(git / "HEAD") or any(git.glob("sharedindex.*")):
            return None
        entries = _index_entries(data, index) if (data := _index_bytes(index)) else ()
        return tuple(top / name for _, name in entries if not name.endswith("/"))
    except (OSError, ValueError, IndexError, UnicodeError):
        return None


def repository_of(folder: Path) -> Path | None:
    """The top of the repository that a folder belongs to; `None` if there is none, or its data lie elsewhere."""
    for each in (folder, *folder.parents):
        place = each / ".git"
        # Git goes on above a folder that only has the name of a repository.
        if _there(place / "HEAD") and _there(place / "objects"):
            return each
        if place.is_file() or place.is_symlink():
            return None
    return None


def _index_bytes(index: Path) -> bytes:
    if not index.exists():
        return b""
    if not index.is_file() or index.stat().st_size > _LARGEST_INDEX:
        raise ValueError(index)
    return index.read_bytes()


def _index_entries(data: bytes, index: Path) -> list[tuple[bytes, str]]:
    """The modes and names of the entries of an index. Raises `ValueError` if its version is not known."""
    if data[:4] != b"DIRC" or int.from_bytes(data[4:8], "big") not in (2, 3):
        raise ValueError(index)
    found: list[tuple[bytes, str]] = []
    place = 12
    for _ in range(int.from_bytes(data[8:12], "big")):
        # An entry has 40 bytes of file facts, with the mode at 24, a SHA-1, flags, perhaps more flags, and a name that ends with NUL.
        start = place + (64 if data[place + 60] & 0x40 else 62)
        end = data.index(b"\0", start)
        found.append((data[place + 24 : place + 28], data[start:end].decode()))
        place += (end - place) // 8 * 8 + 8
    if place > len(data) - 20:
        raise ValueError(index)
    return found


def _hooks_are_quiet(folder: Path) -> bool:
    # The only hook that reading runs: git refreshes the index.
    return not (folder / "hooks" / "post-index-change").exists()


def _bounded(path: Path) -> str:
    if not path.is_file() or path.stat().st_size > _LARGEST:
        raise ValueError(path)
    return path.read_bytes().decode()


def _starts_nothing(config: str, *, nested: bool = False) -> bool:
    section = ""
    for raw in config.split("\n"):
        line = raw.strip()
        if not line or line[0] in "#;":
            continue
        if _CONTINUED.search(line):
            return False
        if line[0] == "[":
            found = _SECTION.fullmatch(line)
            if found is None:
                return False
            section = found[1].lower()
        else:
            setting = _SETTING.fullmatch(line)
            name = "" if setting is None else setting[1].lower()
            if name not in _SETTINGS.get(section, frozenset()) and not (nested and (section, name) == ("core", "worktree")):
                return False
    return True
