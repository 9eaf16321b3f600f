"""Which shell commands print only what is in the workspace: those of known programs on its files; an unknown one may print any page."""

from collections.abc import Callable, Iterator
from typing import Final

from palimpsest.audit.tools.executed import SHELLS, after_options, executed, program_name, word_set

IsBelow = Callable[[str], bool]
"""Says whether a path lies in the workspace."""

# Programs that read files, run the project's own code or check it. Any other one counts as one that may bring a text from elsewhere.
_LOCAL: Final = word_set(
    ": [ [[ alias awk ack ag base64 basename bat break cat cd chgrp chmod chown cksum clear cmp column comm continue cp csplit cut date dd "
    "declare df diff dir dirname dos2unix du echo egrep env exit expand export expr false fd fgrep file find fmt fold gawk grep gunzip "
    "gzip head hexdump id install jobs join jq kill less let ln local locale ls mawk md5sum mkdir mktemp more mv nl nproc od paste patch "
    "pgrep pkill popd printenv printf ps pushd pwd read readlink realpath return rev rg rm rmdir sed seq set sha1sum sha256sum sha512sum "
    "shasum shift shopt sleep sort source . split stat strings sum tac tail tar tee test touch tr trap tree true truncate tsort type "
    "ulimit umask uname unexpand uniq unset unxz unzip uptime wait wc whereis which whoami xmllint xxd xz yq zcat zip bc command "
    "git hg jj "
    "make gmake cmake ctest ninja meson bazel bazelisk buck2 just task gradle gradlew mvn mvnw ant sbt scons pre-commit "
    "python python2 python3 pypy pypy3 pytest py.test tox nox coverage unittest mypy pyright ruff black isort flake8 pylint bandit "
    "pyflakes pycodestyle pydocstyle djlint lint-imports alembic hatch pdm poetry uv pip pip3 pipenv conda sphinx-build mkdocs cython "
    "node npm pnpm yarn bun deno tsc tsx ts-node eslint prettier biome jest vitest mocha ava karma playwright cypress webpack vite rollup "
    "esbuild swc babel next nuxt ng turbo nx lerna stylelint "
    "cargo rustc rustfmt clippy-driver go gofmt goimports golangci-lint staticcheck dlv java javac jar kotlinc kotlin scala scalac groovy "
    "swift swiftc xcodebuild gcc g++ cc c++ clang clang++ clang-format clang-tidy ld ar nm objdump objcopy readelf strip gdb lldb valgrind "
    "strace ltrace perf ruby rake rspec rubocop bundle gem rails irb php phpunit phpstan composer artisan perl prove lua luajit busted "
    "ghc cabal stack hlint mix elixir iex erl rebar3 dotnet msbuild nuget zig nim dart flutter ocaml dune opam julia R Rscript "
    "sqlite3 shellcheck shfmt hadolint yamllint markdownlint protoc buf terraform tofu helm pal"
)
# Subcommands that ask another machine. Options before and after them do not matter.
_INSTALLS: Final = word_set(
    "install i ci add view info show search audit outdated download update upgrade get exec dlx tool index sync init create fetch publish "
    "login whoami owner star docs repo bugs home pull push clone"
)
_REMOTE_SUBCOMMANDS: Final = {
    "git": word_set("clone fetch pull push ls-remote submodule remote svn send-email request-pull fetch-pack http-fetch archive"),
    **dict.fromkeys(("hg", "jj"), word_set("clone pull push incoming outgoing git")),
    **dict.fromkeys(("terraform", "tofu", "helm", "conda"), _INSTALLS | word_set("plan apply import list status refresh")),
    **dict.fromkeys(
        word_set(
            "npm pnpm yarn bun pip pip3 uv poetry pdm hatch pipenv cargo go gem bundle composer dotnet nuget mix stack cabal opam dart"
        )
        | word_set("flutter swift deno"),
        _INSTALLS,
    ),
}
# Options of a program before its subcommand that take a value.
_VALUED: Final = {"git": word_set("-C -c --git-dir --work-tree --namespace --exec-path --config-env")}
# Interpreters, and their options that take a program as text; `-m` takes a module, which may be one that asks another machine.
_INLINE: Final = {
    **dict.fromkeys(("python", "python2", "python3", "pypy", "pypy3"), word_set("-c -")),
    **dict.fromkeys(("node", "bun", "deno", "tsx", "ts-node"), word_set("-e --eval -p --print - eval")),
    **dict.fromkeys(("ruby", "perl", "lua", "luajit", "elixir", "julia", "R", "Rscript"), word_set("-e -E -")),
    "php": word_set("-r -B -R -"),
}
_MODULES: Final = word_set(
    "pytest unittest doctest mypy ruff black isort flake8 pylint pyright coverage tox nox build compileall py_compile json.tool timeit "
    "cProfile pdb venv tokenize ast dis trace tabnanny sphinx mkdocs pre_commit"
)
# Options of `find` after which another program follows.
_EXECUTES: Final = word_set("-exec -execdir -ok -okdir")
# Files by which a shell itself opens a connection.
_SOCKETS: Final = ("/dev/tcp/", "/dev/udp/")


def is_local_line(line: str, is_below: IsBelow) -> bool:
    """Return whether all commands of a shell line are those of known programs on files of the workspace.

    A URL, a variable in the place of a path, code in an argument, and a program or subcommand that is not known to stay on this machine
    make it another one.
    """
    if not line or "://" in line or any(socket in line for socket in _SOCKETS):
        return False
    for command, elsewhere in executed(line):
        words = command.words
        if elsewhere or (words and not _is_local(words, is_below)):
            return False
        if not all(map(is_below, _named_paths(words))):
            return False
    return True


def _is_local(words: tuple[str, ...], is_below: IsBelow) -> bool:
    name = program_name(words[0])
    if words[0].startswith(("./", "../", "/")) and name not in _LOCAL:
        # A program of the project itself.
        return is_below(words[0])
    if name in SHELLS:
        # What a shell got as text has been read already, so that this one runs a file.
        return len(words) > 1 and all(is_below(word) for word in words[1:] if not word.startswith("-"))
    if name not in _LOCAL:
        return False
    if name in _INLINE:
        return _runs_file(words, _INLINE[name])
    if name == "find" and (places := [place for place, word in enumerate(words) if word in _EXECUTES]):
        return all(_is_local(words[place + 1 :], is_below) for place in places if words[place + 1 :])
    remote = _REMOTE_SUBCOMMANDS.get(name, frozenset())
    if name in _VALUED:
        at = after_options(words, _VALUED[name])
        return words[at : at + 1] == () or words[at] not in remote
    return remote.isdisjoint(words[1:])


def _runs_file(words: tuple[str, ...], inline: frozenset[str]) -> bool:
    """Return whether an interpreter runs a file or a module that is known, and no text of the command or of its input."""
    for place, word in enumerate(words[1:], 1):
        if word in inline or (word[:2] in inline and not word.startswith("--")):
            return False
        if word == "-m":
            return words[place + 1 : place + 2] != () and words[place + 1] in _MODULES
        if not word.startswith("-"):
            return _REMOTE_SUBCOMMANDS.get(program_name(words[0]), frozenset()).isdisjoint(words[1:])
    # Without a file it reads its input, unless it only says what it is.
    return any(word in ("--version", "-V", "-v", "--help", "-h") for word in words[1:])


def _named_paths(words: tuple[str, ...]) -> Iterator[str]:
    """Yield the arguments that are paths by their form: absolute ones, those of a home or a variable, and those that go up.

    The program itself is not one of them.
    """
    for word in words[1:]:
        value = word.partition("=")[2] if word.startswith("-") else word
        if value.startswith(("/", "~", "$")) or ".." in value.split("/"):
            yield value
