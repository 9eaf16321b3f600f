"""File accesses of shell lines, patches and edit blocks, and the decision whether a command runs tests."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, Literal, NamedTuple, TypeAlias

from palimpsest.audit.shell_lines import (
    PACKAGE_MANAGERS,
    SHELLS,
    Redirect,
    ShellCommand,
    after_options,
    executed,
    program_name,
    unwrapped,
    word_set,
)
from palimpsest.core.items import Value
from palimpsest.core.text import lazy_pattern

AccessKind: TypeAlias = Literal["read", "edit", "write", "remove", "search"]
_SED_RANGE: Final = lazy_pattern(r"(\d+),(\d+)p|(\d+)p")
_COUNT: Final = lazy_pattern(r"-(\d+)")
_PATHLIKE: Final = lazy_pattern(r"[^\s*?$`{}<>|;&]*[A-Za-z0-9_][^\s*?$`{}<>|;&]*")
_NONE: Final[frozenset[str]] = frozenset()
_OUTPUTS: Final[dict[str, AccessKind]] = {">": "write", ">|": "write", "&>": "write", ">&": "write", ">>": "edit", "&>>": "edit"}


_PATCHED_FILES = lazy_pattern(
    r"^(?:\*\*\* (?P<verb>Update|Add|Delete) File: (?P<path>.+?)"
    r"|\*\*\* Move to: (?P<moved>.+?)"
    r"|\+\+\+ (?:b/)?(?P<new>[^\t\n]+?)"
    r"|--- (?:a/)?(?P<old>[^\t\n]+?))(?:\t.*)?\r?$",
    re.MULTILINE,
)

_ENVELOPE = lazy_pattern(r"\s*\*\*\* Begin Patch[ \t]*\r?\n(?:.*\n)??\*\*\* (?:Update|Add|Delete) File: .+\n(?:.*\n)*\*\*\* End Patch\s*")
_BLOCK = lazy_pattern(r"^[#*` ]*([^\s`*#<>|][^\n`*]{0,300}?)[`*: ]*\n(?:```[^\n]*\n)?<{5,9} SEARCH\b", re.MULTILINE)


class FileAccess(Value, frozen=True):
    """An access to a path as written: its kind, and the lines that were read; without lines the whole file.

    `write` creates the file or replaces its content, `remove` deletes it.
    """

    path: str
    how: AccessKind
    first: int | None = None
    last: int | None = None

    @property
    def whole(self) -> bool:
        """Whether the access covers the whole file."""
        return (self.first is None or self.first <= 1) and self.last is None

    @property
    def changes(self) -> bool:
        """Whether the access changes the file, so that earlier reads are out of date."""
        return self.how in ("edit", "write", "remove")

    def covers(self, other: "FileAccess") -> bool:
        """Whether this access shows every line that another access to the same path showed."""
        if self.path != other.path:
            return False
        if self.whole:
            return True
        if other.whole or (other.last is None and self.last is not None):
            return False
        starts = (self.first or 1) <= (other.first or 1)
        return starts and (self.last is None or other.last is None or self.last >= other.last)


class _Arguments(NamedTuple):
    """Parsed arguments: options by letter or long name with their value or an empty string, and the operands."""

    options: dict[str, str]
    operands: list[str]

    def has(self, *options: str) -> bool:
        return any(option in self.options for option in options)


def shell_file_accesses(line: str) -> tuple[FileAccess, ...]:
    """The file accesses of a line, each path once per kind; of a line that cannot be parsed those that are clear."""
    found: list[FileAccess] = []
    folders: set[str] = set()
    for command, elsewhere in executed(line) if line else ():
        if command.redirects:
            found += _redirect_accesses(command.redirects)
        if command.words and not elsewhere:
            found += _program_accesses(command, folders)
    return tuple({(access.path, access.how): access for access in found}.values()) if found else ()


def _redirect_accesses(redirects: Iterable[Redirect]) -> Iterator[FileAccess]:
    for operator, target in redirects:
        if _is_path(target):
            how = _OUTPUTS.get(operator.lstrip("0123456789"))
            if how is not None:
                yield FileAccess(target, how)
            elif operator == "<":
                yield FileAccess(target, "read")


def _program_accesses(command: ShellCommand, folders: set[str]) -> Iterable[FileAccess]:
    """The file accesses of one program; `folders` are those that the line has created so far."""
    name, rest = program_name(command.words[0]), command.words[1:]
    if name == "git":
        return _git(rest, folders)
    if name == "mkdir":
        folders.update(path.rstrip("/") for path in _arguments(rest, word_set("m mode")).operands)
        return ()
    if name in _TRANSFERS:
        return _TRANSFERS[name](rest, folders)
    if name in _PATCHERS:
        return _patch(name, rest, command.text)
    accesses_of = _PROGRAMS.get(name)
    return accesses_of(rest) if accesses_of is not None else ()


def _arguments(words: Iterable[str], valued: frozenset[str] = _NONE) -> _Arguments:
    """Parse words by the conventions of getopt: letters may be combined, a value is in the same word or the next."""
    options: dict[str, str] = {}
    operands: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            operands += rest
        elif word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            options[name] = value if equals or name not in valued else next(rest, "")
        elif word.startswith("-") and len(word) > 1:
            for place, letter in enumerate(word[1:], 2):
                if letter in valued:
                    options[letter] = word[place:] or next(rest, "")
                    break
                options[letter] = ""
        else:
            operands.append(word)
    return _Arguments(options, operands)


def _every_operand(how: AccessKind, valued: str = "") -> Callable[[tuple[str, ...]], Iterable[FileAccess]]:
    """A program that accesses each of its operands in the same way."""
    valued_options = word_set(valued)
    return lambda rest: _accesses(_arguments(rest, valued_options).operands, how)


def _accesses(paths: Iterable[str], how: AccessKind) -> list[FileAccess]:
    return [FileAccess(path, how) for path in paths if _is_path(path)]


def _head(rest: tuple[str, ...]) -> list[FileAccess]:
    arguments = _arguments(rest, word_set("n c lines bytes"))
    count = next((found[1] for word in rest if (found := _COUNT.fullmatch(word))), "10")
    digits = arguments.options.get("n") or arguments.options.get("lines") or count
    return [FileAccess(path, "read", 1, _number(digits)) for path in arguments.operands if _is_path(path)]


def _tail(rest: tuple[str, ...]) -> list[FileAccess]:
    """The last lines have no numbers, so that 0 stands for them."""
    operands = _arguments(rest, word_set("n c lines bytes")).operands
    return [FileAccess(path, "read", 0, 0) for path in operands if _is_path(path)]


def _get_content(rest: tuple[str, ...]) -> list[FileAccess]:
    valued = ("-tail", "-totalcount", "-encoding", "-readcount")
    words = [word for place, word in enumerate(rest) if not place or rest[place - 1].lower() not in valued]
    return _accesses([word for word in words if not word.startswith("-")], "read")


def _sed(rest: tuple[str, ...]) -> list[FileAccess]:
    # On macOS `-i` takes the suffix of the backup, which is mostly empty.
    words = [word for place, word in enumerate(rest) if word or not place or rest[place - 1] != "-i"]
    arguments = _arguments([_cut_suffix(word) for word in words], word_set("e f l expression file line-length"))
    scripted = arguments.has("e", "f", "expression", "file")
    files = [word for word in (arguments.operands if scripted else arguments.operands[1:]) if _is_path(word)]
    if arguments.has("i", "in-place"):
        return [FileAccess(word, "edit") for word in files]
    spread = next((found for word in rest if (found := _SED_RANGE.search(word))), None)
    if spread is None:
        return [FileAccess(word, "read") for word in files]
    first = _number(spread[1] or spread[3])
    return [FileAccess(word, "read", first, _number(spread[2] or spread[3])) for word in files]


def _cut_suffix(word: str) -> str:
    """Cut the backup suffix off the option `-i` of `sed`."""
    return word[: word.index("i") + 1] if word.startswith("-") and word[1:2] not in ("-", "e", "f", "l", "") and "i" in word else word


def _perl(rest: tuple[str, ...]) -> list[FileAccess]:
    """`perl -i` and `ruby -i` edit their operands; without `-e` the first operand is the program."""
    in_place = scripted = False
    at = 0
    while at < len(rest) and rest[at].startswith("-") and rest[at] != "--":
        takes_next = False
        for place, letter in enumerate(rest[at][1:], 2):
            in_place = in_place or letter == "i"
            if letter in "eE":
                scripted, takes_next = True, not rest[at][place:]
            # The rest of the word after one of these letters is its value.
            if letter in "eEiMmIFxCDr":
                break
        at += 2 if takes_next else 1
    operands = rest[at:] if scripted else rest[at + 1 :]
    return _accesses(operands, "edit") if in_place else []


def _tee(rest: tuple[str, ...]) -> list[FileAccess]:
    arguments = _arguments(rest)
    return _accesses(arguments.operands, "edit" if arguments.has("a", "append") else "write")


def _dd(rest: tuple[str, ...]) -> list[FileAccess]:
    return _accesses([word[3:] for word in rest if word.startswith("of=")], "write")


def _first_file(rest: tuple[str, ...], how: AccessKind) -> list[FileAccess]:
    return _accesses([word for word in rest[:1] if "." in word], how)


def _transfer(rest: tuple[str, ...], folders: set[str], *, moves: bool = False, valued: frozenset[str] = _NONE) -> list[FileAccess]:
    """The targets of a copy, link or move; the sources of a move are removed."""
    arguments = _arguments(rest, valued | {"t", "S", "target-directory", "suffix"})
    sources = arguments.operands
    folder = arguments.options.get("t") or arguments.options.get("target-directory", "")
    if not folder and len(sources) == 1:
        return []
    if not folder:
        *sources, target = sources or [""]
        if len(sources) != 1 or target.endswith("/") or target in (".", "..") or target in folders:
            folder = target
    targets = [_within(folder, source) for source in sources] if folder else [target]
    gone = _accesses(sources, "remove") if moves else []
    return gone + _accesses(targets, "write")


def _within(folder: str, source: str) -> str:
    """The path of a file inside a folder."""
    name = source.rstrip("/").rpartition("/")[2]
    return name if folder in (".", "./") else f"{folder.rstrip('/')}/{name}"


def _install(rest: tuple[str, ...], folders: set[str]) -> list[FileAccess]:
    valued = word_set("m o g mode owner group")
    arguments = _arguments(rest, valued | {"t", "S"})
    if arguments.has("d", "directory"):
        folders.update(path.rstrip("/") for path in arguments.operands)
        return []
    return _transfer(rest, folders, valued=valued)


def _link(rest: tuple[str, ...], folders: set[str]) -> list[FileAccess]:
    arguments = _arguments(rest, word_set("t S"))
    if len(arguments.operands) == 1 and not arguments.has("t"):
        return _accesses([_within(".", arguments.operands[0])], "write")
    return _transfer(rest, folders)


def _patch(name: str, rest: tuple[str, ...], text: str) -> list[FileAccess]:
    """The file that `patch` is asked to change, or else the files that a patch inside the line names."""
    if name != "patch":
        return list(patched_files("\n".join((*rest, text))))
    arguments = _arguments(rest, word_set("p i o d B D F g r V Y z strip input output directory"))
    output = arguments.options.get("o") or arguments.options.get("output", "")
    if output or arguments.operands:
        return _accesses([output or arguments.operands[0]], "edit")
    return list(patched_files(text))


def _git(rest: tuple[str, ...], folders: set[str]) -> list[FileAccess]:
    """The file accesses of git commands that name files of the working tree."""
    at, folder = 0, ""
    while at < len(rest) and rest[at].startswith("-"):
        if rest[at] == "-C" and at + 1 < len(rest):
            folder = rest[at + 1]
        at += 2 if rest[at] in ("-C", "-c", "--git-dir", "--work-tree") else 1
    verb, words = (rest[at], rest[at + 1 :]) if at < len(rest) else ("", ())
    found: list[FileAccess] = []
    if verb == "mv":
        found = _transfer(words, folders, moves=True)
    elif verb == "rm" and "--cached" not in words:
        found = _accesses(_arguments(words).operands, "remove")
    elif verb == "checkout" and "--" in words:
        found = _accesses(words[words.index("--") + 1 :], "edit")
    elif verb == "restore":
        arguments = _arguments(words, word_set("s source"))
        staged = arguments.has("S", "staged") and not arguments.has("W", "worktree")
        found = [] if staged else _accesses(arguments.operands, "edit")
    if not folder:
        return found
    return [access if access.path.startswith("/") else FileAccess(f"{folder.rstrip('/')}/{access.path}", access.how) for access in found]


def _number(digits: str) -> int | None:
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 12 else None


def _is_path(word: str) -> bool:
    return (
        len(word) < 400
        and _PATHLIKE.fullmatch(word) is not None
        and not word.isdigit()
        and not word.startswith(("-", "/dev/"))
        and word.lower() != "nul"
    )


_TRANSFERS: Final[dict[str, Callable[[tuple[str, ...], set[str]], list[FileAccess]]]] = {
    "mv": partial(_transfer, moves=True),
    "cp": _transfer,
    "ln": _link,
    "install": _install,
}
_PATCHERS: Final = frozenset({"patch", "apply_patch", "applypatch"})
_PROGRAMS: Final[dict[str, Callable[[tuple[str, ...]], Iterable[FileAccess]]]] = {
    **dict.fromkeys(("cat", "tac", "less", "more", "type"), _every_operand("read")),
    "bat": _every_operand("read", "r l H line-range language highlight-line style theme"),
    "nl": _every_operand("read", "b d f h i l n s v w"),
    **dict.fromkeys(("Get-Content", "gc"), _get_content),
    "head": _head,
    "tail": _tail,
    "sed": _sed,
    **dict.fromkeys(("perl", "ruby"), _perl),
    "tee": _tee,
    "dd": _dd,
    **dict.fromkeys(("rm", "unlink"), _every_operand("remove")),
    "truncate": _every_operand("edit", "s r size reference"),
    "touch": _every_operand("write", "d r t date reference time"),
    **dict.fromkeys(("open", "goto"), partial(_first_file, how="read")),
    "create": partial(_first_file, how="write"),
}


def edit_blocks(text: str) -> tuple[str, ...]:
    """The files of search-and-replace blocks in a reply."""
    return tuple(dict.fromkeys(_BLOCK.findall(text))) if "<<<< SEARCH" in text else ()


def is_patch(text: str) -> bool:
    """Whether a text is nothing but a patch in its envelope, from `*** Begin Patch` to `*** End Patch`, with at least one file."""
    return "*** Begin Patch" in text[:200] and _ENVELOPE.fullmatch(text) is not None


def patched_files(text: str) -> tuple[FileAccess, ...]:
    """The accesses to each file of a patch, in order: added files are written, others edited."""
    found: dict[str, FileAccess] = {}
    own = "*** Begin Patch" in text or "*** Update File: " in text or "*** Add File: " in text
    for match in _PATCHED_FILES.finditer(text):
        # Changed lines may look like diff headers, which such a patch does not have.
        path = match["path"] or match["moved"] or ("" if own else match["new"] or match["old"])
        if not path or path == "/dev/null":
            continue
        path = path.strip()
        found.setdefault(path, FileAccess(path, "write" if match["verb"] == "Add" else "edit"))
    return tuple(found.values())


# Programs that run tests whatever their arguments are.
_RUNNERS: Final = word_set(
    "pytest py.test unittest nose nose2 nosetests trial stestr green behave tox nox jest vitest mocha ava jasmine tap phpunit pest "
    "paratest rspec cucumber minitest ctest bats busted prove ginkgo gotestsum cargo-nextest elm-test runtests kyua"
)
# Programs that run tests by a sub-command, which is the first operand.
_BY_SUBCOMMAND: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(
        word_set(
            "go deno mix swift flutter dart lein hatch react-scripts craco playwright hardhat forge anchor truffle bazel bazelisk buck "
            "buck2 pants gleam stack meson mach sail tuist scarb nargo helm terraform opa manage.py django-admin django artisan "
            "setup.py zig x.py vue-cli-service"
        ),
        word_set("test"),
    ),
    "cargo": word_set("test t tarpaulin"),
    "cabal": word_set("test new-test v2-test"),
    "dune": word_set("test runtest"),
    "crystal": word_set("spec"),
    "cypress": word_set("run"),
    "karma": word_set("start run"),
    "dotnet": word_set("test vstest"),
    "rails": word_set("test spec"),
    "ng": word_set("test e2e"),
}
# Programs whose operands are targets, of which any may run tests; with the options that take a value.
_BY_TARGET: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(("make", "gmake", "ninja"), word_set("-f -C -I -o -W -j -l --file --directory")),
    **dict.fromkeys(("just", "task", "invoke", "inv", "rake", "doit"), word_set("-f -d -t --justfile --working-directory --dir")),
    **dict.fromkeys(("mvn", "mvnw", "mvnd"), word_set("-pl -f -P -s -T -rf --projects --file")),
    **dict.fromkeys(("gradle", "gradlew"), word_set("--tests -x --exclude-task -p --project-dir -b -I --include-build")),
    "sbt": word_set(""),
    "xcodebuild": word_set("-scheme -project -workspace -destination -sdk -configuration -target -testPlan"),
}
# Programs that run a script of the project by name, perhaps after a word such as `run`; with the options that take a value.
_BY_SCRIPT: Final[dict[str, frozenset[str]]] = {
    **PACKAGE_MANAGERS,
    **dict.fromkeys(word_set("composer mise turbo nx lerna moon rush hatch pdm rye pixi melos deno"), word_set("")),
}
_RUN: Final = word_set("run run-script run-many affected workspaces foreach task")
# Those that also accept the name of an installed program in place of a script.
_RUN_PROGRAMS: Final = word_set("yarn pnpm bun pdm rye pixi")
_INTERPRETERS: Final = lazy_pattern(r"(?:python|pypy)[\d.]*|py|node|nodejs|tsx|ts-node|ruby|php|perl")
# Options of interpreters and of programs with sub-commands that take a value.
_VALUED: Final = word_set("-X -W -d -r --require --import --loader -I -C --manifest-path -p --project --config")
# Options with which a test runner only lists, builds or explains.
_RUNS_NOTHING: Final = word_set(
    "--version --help -h --collect-only --co --no-run --listTests --list-tests --fixtures --markers --showConfig"
)
_TEST_WORDS: Final = word_set("test tests spec specs e2e unittest unittests")
_KINDS_OF_TEST: Final = word_set("unit integration functional smoke e2e run api ui")
_PARTS: Final = lazy_pattern(r"[:._/-]+")
_CAMEL: Final = lazy_pattern(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_NO_RUN_TASKS: Final = word_set("compile assemble build clean process classes jar lint format types typecheck generate db")
_ENDING: Final = lazy_pattern(r"\.(?:py|js|mjs|cjs|rb|php|phar|sh)$")
_DEEPEST: Final = 4


def runs_tests(words: tuple[str, ...], depth: int = 0) -> bool:
    """Whether a simple command without wrappers runs tests."""
    return depth <= _DEEPEST and _is_test_run(words, depth) and _RUNS_NOTHING.isdisjoint(words)


def _is_test_run(words: tuple[str, ...], depth: int) -> bool:
    name = _plain(words[0])
    if name in _RUNNERS:
        return True
    if name in _BY_TARGET:
        return _runs_target(name, words)
    if name in _BY_SCRIPT and _runs_script(name, words, depth):
        return True
    if name in _BY_SUBCOMMAND:
        return _runs_subcommand(name, words)
    if name in SHELLS or _INTERPRETERS.fullmatch(name):
        return _interprets(words, depth)
    return _is_own_script(words)


def _plain(word: str) -> str:
    """The name of a program without folder, version and script suffix."""
    name = program_name(word)
    return name if name.isalnum() or name in _BY_SUBCOMMAND else _ENDING.sub("", name.partition("@")[0] or name)


def _runs_subcommand(name: str, words: tuple[str, ...]) -> bool:
    at = after_options(words, _VALUED)
    operands = words[at : at + 2]
    if name == "cargo" and operands[:1] == ("nextest",):
        return operands[1:] in ((), ("run",), ("r",)) or operands[1].startswith("-")
    wanted = _BY_SUBCOMMAND[name]
    first = operands[0].partition(":")[0] if operands else ""
    # `zig build test`, `dotnet watch test` and their like.
    return first in wanted or (first in ("build", "watch", "miri", "llvm-cov") and operands[1:2] == ("test",))


def _runs_target(name: str, words: tuple[str, ...]) -> bool:
    at = 1
    valued = _BY_TARGET[name]
    while at < len(words):
        word = words[at]
        if word.startswith("-"):
            at += 2 if word in valued else 1
            continue
        if _is_test_target(name, word):
            return True
        at += 1
    return False


def _is_test_target(name: str, word: str) -> bool:
    if name in ("mvn", "mvnw", "mvnd"):
        return word.rpartition(":")[2] in ("test", "verify", "integration-test")
    if name in ("gradle", "gradlew"):
        return _is_gradle_test(word.rpartition(":")[2])
    if name == "sbt":
        return word.split(" ", maxsplit=1)[0].rpartition("/")[2].rpartition(":")[2] in ("test", "testOnly", "testQuick")
    if name == "xcodebuild":
        return word in ("test", "test-without-building")
    return word in ("check", "distcheck") or _is_test_script(word)


def _is_gradle_test(task: str) -> bool:
    parts = [part.lower() for part in _CAMEL.findall(task)]
    return bool(parts) and _NO_RUN_TASKS.isdisjoint(parts) and (parts[0] == "test" or parts[-1] in ("test", "tests", "check"))


def _is_test_script(word: str) -> bool:
    """Whether the name of a script or target says that it runs tests: `test`, `test:unit`, `web:test`, `unit-tests`, `e2e`."""
    parts = [part.lower() for part in _PARTS.split(word) if part]
    if not parts or not _NO_RUN_TASKS.isdisjoint(parts):
        return False
    if parts[0] in _TEST_WORDS or word.rpartition(":")[2] in _TEST_WORDS:
        return True
    return parts[0] in _KINDS_OF_TEST and parts[1:2] in (["test"], ["tests"])


def _runs_script(name: str, words: tuple[str, ...], depth: int) -> bool:
    valued = _BY_SCRIPT[name]
    at = after_options(words, valued)
    while at < len(words) and words[at] in _RUN:
        at = after_options(words, valued, at + 1)
    if words[at : at + 1] == ("workspace",):
        at = after_options(words, valued, at + 2)
    if at >= len(words):
        return name == "nx" and "--target=test" in words
    script = words[at]
    if name in ("nx", "moon"):
        # A project, its target and perhaps a configuration.
        script = script.split(":")[1] if ":" in script else script
    if _is_test_script(script) or (name in ("npm", "pnpm") and script in ("t", "tst")):
        return True
    return name in _RUN_PROGRAMS and _runs_tests_unwrapped(words[at:], depth)


def _interprets(words: tuple[str, ...], depth: int) -> bool:
    """Whether an interpreter runs tests: a module, a script of the project, or `node --test`."""
    at = 1
    shell = program_name(words[0]) in SHELLS
    while at < len(words) and words[at].startswith("-"):
        word = words[at]
        if word == "--test":
            return True
        # Letters may be combined: `python -um pytest`.
        if word[1:2] != "-" and word.endswith("m") and not shell:
            return at + 1 < len(words) and _runs_tests_unwrapped(words[at + 1 :], depth)
        # Code in an argument is not parsed, and `bash -n` only checks the syntax.
        if word in ("-c", "-e", "-p", "--eval", "--print") or (shell and word == "-n"):
            return False
        at += 2 if word in _VALUED else 1
    return at < len(words) and (_is_named_as_tests(words[at]) or _runs_tests_unwrapped(words[at:], depth))


def _runs_tests_unwrapped(words: tuple[str, ...], depth: int) -> bool:
    inner, _ = unwrapped(words)
    return bool(inner) and runs_tests(inner, depth + 1)


def _is_own_script(words: tuple[str, ...]) -> bool:
    """Whether a script of the project, given by its path, runs tests: by its name, or because it gets a test runner as argument."""
    path = words[0]
    if "/" not in path or path.startswith("/"):
        return False
    return _is_named_as_tests(path) or (len(words) > 1 and _plain(words[1]) in _RUNNERS and "/" not in words[1])


def _is_named_as_tests(path: str) -> bool:
    return _plain(path) in ("test", "tests", "run_tests", "run-tests", "run_test", "run-test", "test-all", "test_all", "unit-tests")
