"""Decides whether a command runs tests, by its program and sub-command and never by other words of the line."""

from typing import Final

from palimpsest.audit.tools.executed import PACKAGE_MANAGERS, SHELLS, after_options, program_name, unwrapped, word_set
from palimpsest.core.tokens.patterns import lazy_pattern

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
