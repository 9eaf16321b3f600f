"""Git commands that only read: a table of sub-commands with the options that are known to neither write nor start anything."""

import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from palimpsest.audit.tools.executed import word_set
from palimpsest.tools.permissions.command_line import LineCommand, Word
from palimpsest.tools.permissions.read_only import Options, Parsed, parse_options

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

# Options with which `log`, `show` and `diff` print contents, and those with which they print names or numbers instead.
_PATCH: Final = word_set("-p -u -c -m -U -L -R --patch --unified --word-diff --check --follow")
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
