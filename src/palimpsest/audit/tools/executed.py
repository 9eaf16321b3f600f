"""The commands that a shell line executes: wrappers such as `sudo` or `uv run` removed, and scripts in arguments parsed in their place."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from palimpsest.audit.tools.shell import ShellCommand, parse_line
from palimpsest.core.tokens.patterns import lazy_pattern

SHELLS: Final = frozenset({"bash", "sh", "zsh", "dash", "ksh", "ash", "fish"})
# Longer lines are not cached, to bound memory.
_CACHED_CHARACTERS: Final = 4_000
_DEEPEST: Final = 3
_ASSIGNMENT: Final = lazy_pattern(r"[A-Za-z_]\w*=")
_SUFFIX: Final = lazy_pattern(r"\.(?:exe|cmd|bat)$", re.IGNORECASE)
# The editor inside the shell of SWE-agent reads text up to this line.
_END_OF_EDIT: Final = "end_of_edit"


class Executed(NamedTuple):
    """A command after its wrappers are removed; `elsewhere` means in a container, whose paths are not those of the session."""

    command: ShellCommand
    elsewhere: bool = False


class _Wrapper(NamedTuple):
    """How a wrapper holds a command: after its options and operands, or after `--` if `dashes`; `valued` options take a value."""

    valued: frozenset[str] = frozenset()
    operands: int = 0
    dashes: bool = False
    elsewhere: bool = False


def word_set(text: str) -> frozenset[str]:
    """The words of a text as a set."""
    return frozenset(text.split())


def _wrappers(commands: str, wrapper: _Wrapper) -> dict[str, _Wrapper]:
    return dict.fromkeys(commands.split(", "), wrapper)


# Options before the sub-command that take a value.
PACKAGE_MANAGERS: Final = {
    "npm": word_set("--prefix -w --workspace -C"),
    "pnpm": word_set("-C --dir --filter -F"),
    "yarn": word_set("--cwd"),
    "bun": word_set("--cwd --filter -F"),
}
_UV: Final = _Wrapper(
    word_set(
        "-p --python --with --with-editable --with-requirements --project --directory --extra --group --only-group --package --env-file "
        "--index --index-url --default-index --cache-dir --config-file -w --from"
    )
)
_CONTAINER: Final = word_set("-e --env -u --user -w --workdir --env-file --entrypoint -v --volume -p --publish --name --index")
_WRAPPERS: Final[dict[str, _Wrapper]] = {
    **_wrappers("nohup, setsid, builtin, command, chronic, unbuffer, catchsegv, cross-env, rtk, nyc, c8, fvm", _Wrapper()),
    **_wrappers("poetry run, pipenv run, bundle exec, rbenv exec, asdf exec", _Wrapper()),
    **_wrappers("mise exec, mise x, op run, doppler run, dotenvx run, infisical run, aws-vault exec", _Wrapper(dashes=True)),
    **_wrappers("timeout, gtimeout", _Wrapper(word_set("-k --kill-after -s --signal"), 1)),
    "direnv exec": _Wrapper(operands=1),
    "env": _Wrapper(word_set("-u --unset -C --chdir")),
    "sudo": _Wrapper(word_set("-u --user -g --group -h --host -p --prompt -C -D --chdir -R -T -U")),
    "doas": _Wrapper(word_set("-u -C")),
    "time": _Wrapper(word_set("-f --format -o --output")),
    "nice": _Wrapper(word_set("-n --adjustment")),
    "ionice": _Wrapper(word_set("-c --class -n --classdata")),
    "stdbuf": _Wrapper(word_set("-i -o -e --input --output --error")),
    "exec": _Wrapper(word_set("-a")),
    "caffeinate": _Wrapper(word_set("-t -w")),
    "xvfb-run": _Wrapper(word_set("-n --server-num -s --server-args -e --error-file -f --auth-file -w --wait")),
    "dotenv": _Wrapper(word_set("-e -f --file -c -v")),
    **_wrappers("uv run, uv tool run, uvx", _UV),
    "pipx run": _Wrapper(word_set("--spec --python --index-url --pip-args")),
    **_wrappers("conda run, mamba run, micromamba run", _Wrapper(word_set("-n --name -p --prefix --cwd"))),
    "coverage run": _Wrapper(word_set("--source --rcfile --omit --include --data-file --context --concurrency")),
    **_wrappers(
        "npx, bunx, pnpx, npm exec, npm x, pnpm exec, pnpm dlx, yarn exec, yarn dlx, bun x",
        _Wrapper(word_set("-p --package -w --workspace")),
    ),
    **_wrappers(
        "docker exec, podman exec, docker compose exec, docker compose run, docker-compose exec, docker-compose run",
        _Wrapper(_CONTAINER, 1, elsewhere=True),
    ),
}
# Programs whose sub-commands are wrappers, with the options before the sub-command that take a value.
_GROUPS: Final[dict[str, frozenset[str]]] = {
    **{name.rpartition(" ")[0]: frozenset() for name in _WRAPPERS if " " in name},
    **PACKAGE_MANAGERS,
    **dict.fromkeys(("docker compose", "docker-compose"), word_set("-f --file -p --project-name --profile --env-file")),
    "docker": word_set("-H --host -c --context"),
    "uv": word_set("--project --directory --config-file --cache-dir"),
    "poetry": word_set("-C --directory -P --project"),
}


def executed(line: str) -> tuple[Executed, ...]:
    """The commands of a line in order, without their wrappers."""
    return _cached_commands(line) if len(line) <= _CACHED_CHARACTERS else tuple(_commands(line, 0))


@lru_cache(maxsize=64)
def _cached_commands(line: str) -> tuple[Executed, ...]:
    """Cached, because file accesses and test runs of a line are asked one after the other."""
    return tuple(_commands(line, 0))


def program_name(word: str) -> str:
    """The name of a program without folder and executable suffix."""
    # Most names are plain words.
    return word if word.isalnum() else _SUFFIX.sub("", word.replace("\\", "/").rpartition("/")[2])


def after_options(words: tuple[str, ...], valued: frozenset[str], at: int = 1) -> int:
    """The index of the first operand; options in `valued` take the next word, and `--` ends the options."""
    while at < len(words) and words[at][:1] in ("-", "+") and len(words[at]) > 1:
        if words[at] == "--":
            return at + 1
        at += 2 if words[at] in valued else 1
    return at


def _commands(line: str, depth: int) -> Iterator[Executed]:
    if line[:5] in ("edit ", "edit\n") and _END_OF_EDIT in line:
        line = line.partition("\n")[0]
    for command in parse_line(line):
        yield from _unwrap(command, depth)


def _unwrap(command: ShellCommand, depth: int) -> Iterator[Executed]:
    """A command without its wrappers, or the commands of the script in its arguments."""
    words, elsewhere = unwrapped(command.words)
    script = _script_of(words, command.text) if words and depth < _DEEPEST else None
    if script is None:
        yield Executed(command if words is command.words else command._replace(words=words), elsewhere)
        return
    if command.redirects:
        yield Executed(ShellCommand(redirects=command.redirects))
    for inner in _commands(script, depth + 1):
        yield inner._replace(elsewhere=elsewhere or inner.elsewhere)


def unwrapped(words: tuple[str, ...]) -> tuple[tuple[str, ...], bool]:
    """The words of a command without all of its wrappers, and whether it runs elsewhere."""
    elsewhere = False
    while words and (wrapped := _wrapped_command(words)) is not None:
        words, outside = wrapped
        elsewhere = elsewhere or outside
    return words, elsewhere


def _wrapped_command(words: tuple[str, ...]) -> tuple[tuple[str, ...], bool] | None:
    """The words of the wrapped command, and whether it runs elsewhere; `None` if the words are no wrapper."""
    name, at = program_name(words[0]), 1
    while name in _GROUPS:
        at = after_options(words, _GROUPS[name], at)
        if at >= len(words):
            return None
        name, at = f"{name} {words[at]}", at + 1
    wrapper = _WRAPPERS.get(name)
    # `command -v` only prints where a program is.
    if wrapper is None or (name == "command" and words[1:2] in (("-v",), ("-V",))):
        return None
    if wrapper.dashes and "--" in words[at:]:
        return words[words.index("--", at) + 1 :], wrapper.elsewhere
    at = after_options(words, wrapper.valued, at) + wrapper.operands
    while at < len(words) and _ASSIGNMENT.match(words[at]):
        at += 1
    return words[at:], wrapper.elsewhere


def _script_of(words: tuple[str, ...], text: str) -> str | None:
    """The script that a shell gets as argument or input; `None` for other programs and script files."""
    name = program_name(words[0])
    if name == "eval":
        return " ".join(words[1:])
    if name not in SHELLS:
        return None
    at = 1
    while at < len(words) and words[at][:1] in ("-", "+"):
        word = words[at]
        if word[1:2] != "-" and "c" in word:
            return words[at + 1] if at + 1 < len(words) else None
        # The value of `-o` is a separate word.
        at += 2 if word[1:2] != "-" and word.endswith("o") else 1
    return text or None if at >= len(words) else None
