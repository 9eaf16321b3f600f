"""Parses a shell line into simple commands, and finds the commands that it executes behind wrappers such as `sudo`."""

import re
from collections.abc import Iterator
from functools import cache, lru_cache, partial
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from palimpsest.core.text import lazy_pattern, whole_number

if TYPE_CHECKING:
    from tree_sitter import Node, Parser


# Parsed characters of a line, here-documents aside; error recovery takes time with the square of the length.
LONGEST: Final = 2_500
_MOST_PARSES: Final = 8
_OPENER: Final = lazy_pattern(r"<<-?\s*(['\"]?)([A-Za-z_]\w*)\1")
_OTHER_LETTER: Final = lazy_pattern(r"[^\x00-\x7f]")
_ESCAPED: Final = lazy_pattern(r"\\(.)", re.DOTALL)
_ESCAPED_IN_QUOTES: Final = lazy_pattern(r"\\([\"\\$`\n])")
_AS_WRITTEN: Final = frozenset({"word", "number", "command_name"})
_PLAIN: Final = frozenset({"word", "number", "raw_string"})
_SEQUENCES: Final = frozenset({"pipeline", "list", "negated_command"})
_REDIRECTS: Final = frozenset({"file_redirect", "heredoc_redirect", "herestring_redirect"})
# Nodes that contain no commands.
_LEAVES: Final = _PLAIN | {"variable_name", "comment", "heredoc_start", "heredoc_body", "heredoc_end", "string_content", "simple_expansion"}


class Redirect(NamedTuple):
    """A redirection: its operator with the file descriptor, and its target."""

    operator: str
    target: str


class ShellCommand(NamedTuple):
    """A simple command; a redirection of a compound statement is a command without words.

    Words with an expansion or a pattern stay verbatim. `text` is the content of a here-document or here-string.
    """

    words: tuple[str, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    text: str = ""


def parse_line(line: str) -> list[ShellCommand]:
    """The simple commands of a line in order, those in substitutions, loops and conditions included."""
    bodies: list[str] = []
    if len(line) > LONGEST:
        line = _without_bodies(line, bodies)[:LONGEST]
    commands: list[ShellCommand] = []
    for _ in range(_MOST_PARSES):
        walk = _LineWalker(line, bodies)
        commands = list(walk.commands())
        if not walk.overrun:
            break
        # The grammar takes the line after some pipelines for more arguments; a semicolon in place of the line break corrects that.
        line = "".join([";" if place in walk.overrun else letter for place, letter in enumerate(line)])
    return commands


def _without_bodies(line: str, bodies: list[str]) -> str:
    """The line with each here-document replaced by its index in `bodies`; one without an end takes the rest of the line."""
    kept_lines: list[str] = []
    body: list[str] = []
    delimiters: list[str] = []
    for part in line.split("\n"):
        if not delimiters:
            kept_lines.append(part)
            delimiters = [match[2] for match in _OPENER.finditer(part)]
        elif part.strip() != delimiters[0]:
            body.append(f"{part}\n")
        else:
            kept_lines += [str(len(bodies)), delimiters.pop(0)]
            bodies.append("".join(body))
            body.clear()
    if delimiters:
        kept_lines += [str(len(bodies)), delimiters[0]]
        bodies.append("".join(body))
    return "\n".join(kept_lines)


class _LineWalker:
    """Walks the syntax tree of a line without recursion, because lines may be nested as deep as they are long.

    `overrun` are the offsets of line breaks that the grammar took for blanks.
    """

    def __init__(self, line: str, bodies: list[str]) -> None:
        self._line = line
        # The scanner of the grammar reads out of bounds on other characters; one byte for each keeps offsets of tree and line equal.
        self._source = (line if line.isascii() else _OTHER_LETTER.sub("x", line)).encode()
        self._bodies = bodies
        self._nodes: list[Node] = []
        # The redirections of a statement belong to the last command in it.
        self._redirects: dict[int, list[Node]] = {}
        self.overrun: set[int] = set()

    def commands(self) -> Iterator[ShellCommand]:
        # A parser shared by threads would mix up their trees. The local variable keeps the tree alive as long as its nodes.
        tree = _parser_factory()().parse(self._source)
        self._nodes.append(tree.root_node)
        while self._nodes:
            node = self._nodes.pop()
            kind = node.type
            if kind == "command":
                yield self._simple(node, self._redirects.pop(node.id, []) if self._redirects else [])
            elif kind == "redirected_statement":
                children = node.named_children
                redirects = [child for child in children if child.type in _REDIRECTS]
                last = _last_command(children[0])
                if last is None:
                    yield self._redirected(ShellCommand(), redirects)
                else:
                    self._redirects.setdefault(last.id, []).extend(redirects)
                self._nodes += [child for child in reversed(children) if child not in redirects]
            elif kind in _REDIRECTS:
                yield self._redirected(ShellCommand(), [node])
            elif kind not in _LEAVES:
                self._nodes += reversed(node.named_children)

    def _simple(self, command: "Node", attached: "list[Node]") -> ShellCommand:
        """The command of a node; nested commands in its words are walked next."""
        words: list[str] = []
        redirects: list[Node] = []
        inner: list[Node] = []
        end = 0
        line = self._line
        for part in command.named_children:
            node, kind = part, part.type
            start, stop = part.start_byte, part.end_byte
            word = line[start:stop]
            if kind == "command_name" and not word.isalnum():
                node = part.named_children[0]
                kind = node.type
            if kind in _AS_WRITTEN:
                if "\\" in word:
                    word = _ESCAPED.sub(r"\1", word)
            elif kind in _REDIRECTS:
                redirects.append(node)
                continue
            elif kind == "variable_assignment":
                inner.append(node)
                continue
            else:
                word = self._word(node)
                if "$" in word or "`" in word or "(" in word:
                    inner.append(node)
            if not words or line[end:start] == " ":
                words.append(word)
            elif start == end:
                # The grammar splits a word such as `a$b.$c` in two.
                words[-1] += word
            else:
                self._look_between(end, start)
                words.append(word)
            end = stop
        if inner:
            self._nodes += reversed(inner)
        found = ShellCommand(tuple(words))
        return self._redirected(found, [*redirects, *attached]) if redirects or attached else found

    def _look_between(self, end: int, start: int) -> None:
        """Record a line break between two words that the grammar took for a blank."""
        gap = self._line[end:start].replace("\\\n", "  ")
        if "\n" in gap:
            self.overrun.add(end + gap.index("\n"))

    def _redirected(self, command: ShellCommand, nodes: "list[Node]") -> ShellCommand:
        """The command with its redirections; words after the target are arguments, and nested commands are walked next."""
        words, redirects, text = list(command.words), list[Redirect](), command.text
        inner: list[Node] = []
        rest = nodes[::-1]
        while rest:
            node = rest.pop()
            if node.type == "file_redirect":
                targets = [child for child in node.named_children if child.type != "file_descriptor"]
                inner += [target for target in targets if target.type not in _PLAIN]
                for target in targets[:1]:
                    redirects.append(Redirect(self._line[node.start_byte : target.start_byte].strip(), self._word(target)))
                words += [self._word(target) for target in targets[1:]]
                for target, argument in pairwise(targets):
                    self._look_between(target.end_byte, argument.start_byte)
            elif node.type == "herestring_redirect":
                text = "".join([self._word(child) for child in node.named_children])
            else:
                words += [self._word(child) for child in node.children_by_field_name("argument")]
                for child in node.named_children:
                    if child.type == "heredoc_body":
                        text = self._body(self._word_text(child))
                    elif child.type in _REDIRECTS:
                        rest.append(child)
                    elif child.type not in _LEAVES:
                        inner.append(child)
        self._nodes += reversed(inner)
        return ShellCommand(tuple(words), tuple(redirects), text)

    def _word_text(self, node: "Node") -> str:
        return self._line[node.start_byte : node.end_byte]

    def _body(self, body: str) -> str:
        number = whole_number(body.strip())
        return self._bodies[number] if number is not None and number < len(self._bodies) else body

    def _word(self, node: "Node") -> str:
        """The word as the shell would pass it on, as far as that does not depend on its state."""
        text = self._word_text(node)
        match node.type:
            case "word":
                return _ESCAPED.sub(r"\1", text) if "\\" in text else text
            case "raw_string":
                return text[1:-1]
            case "string":
                return _ESCAPED_IN_QUOTES.sub(r"\1", text[1:-1]) if "\\" in text else text[1:-1]
            case "ansi_c_string":
                return _ESCAPED.sub(r"\1", text[2:-1].replace("\\n", "\n").replace("\\t", "\t"))
            case "concatenation":
                return "".join([self._word(child) for child in node.children])
            case _:
                return text


def _last_command(node: "Node") -> "Node | None":
    while node.type in _SEQUENCES and node.named_children:
        node = node.named_children[-1]
    return node if node.type == "command" else None


@cache
def _parser_factory() -> "partial[Parser]":
    """What makes a parser of shell lines."""
    # By name, because parser and grammar take 8 ms with what they import, and only a session with commands needs them.
    parsers, grammar = import_module("tree_sitter"), import_module("tree_sitter_bash")
    return partial(parsers.Parser, parsers.Language(grammar.language()))


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
