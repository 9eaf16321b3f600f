"""Strict parsing of shell lines for permissions, and the commands that a line starts, also by `bash -c` or `xargs`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from palimpsest.audit.shell_lines import SHELLS, after_options, executed, program_name, unwrapped, word_set

LONGEST: Final = 8_000
_BASH: Final = Language(tree_sitter_bash.language())
_OTHER_LETTER: Final = re.compile(r"[^\x00-\x7f]")
# Bash takes these for letters of a word or drops them, the grammar takes some for blanks.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_BLANK: Final = re.compile(r"(?:[ \t]|\\\n)*")
_WHITE: Final = re.compile(r"(?:[ \t\n]|\\\n)*")
# Bash drops an escaped line break before it looks for words, so that one beside a letter joins what stands around it.
_JOINING_BREAK: Final = re.compile(r"(?<![^\\][ \t])\\\n")
_ESCAPE: Final = re.compile(r"\\([^\n])")
_ESCAPE_IN_QUOTES: Final = re.compile(r"\\([\"\\$`])")
_ACTIVE: Final = re.compile(r"[$`;&|<>()\"'\\\n]")
_ACTIVE_IN_QUOTES: Final = re.compile(r"[`\"]|\$[\w({\[*@#?$!-]")
_STRUCTURES: Final = frozenset(
    {"program", "pipeline", "list", "negated_command", "subshell", "compound_statement", "if_statement", "elif_clause", "else_clause"}
)
_TOKENS: Final = frozenset(
    {";", "&", "&&", "||", "|", "|&", "\n", "(", ")", "{", "}", "!", "if", "then", "elif", "else", "fi", "$(", "`", "<(", ">("}
)
_REDIRECTS: Final = frozenset({"file_redirect", "heredoc_redirect", "herestring_redirect"})
_SUBSTITUTIONS: Final = frozenset({"command_substitution", "process_substitution"})
_DYNAMIC: Final = "\ufffd"
"""Stands in the text of a word for what only the shell knows."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command without its quotes. One that is not `static` depends on the state of the shell; a `glob` on the files."""

    text: str
    static: bool = True
    glob: bool = False


@dataclass(frozen=True, slots=True)
class Redirection:
    """The operator with its file descriptor, and the target; the target of a here-document is its delimiter."""

    operator: str
    target: Word


@dataclass(frozen=True, slots=True)
class LineCommand:
    """A simple command. `assignments` are the variables set for it, `NAME=value`; without words they are set in the shell.

    An `inferred` command is what another one starts, as far as its arguments show; only rules that deny or ask look at it.
    """

    words: tuple[Word, ...] = ()
    assignments: tuple[Word, ...] = ()
    redirections: tuple[Redirection, ...] = ()
    inferred: bool = False

    @property
    def texts(self) -> tuple[str, ...]:
        """The words as texts."""
        return tuple(word.text for word in self.words)


@dataclass(frozen=True, slots=True)
class CommandLine:
    """All commands of a line, those in substitutions included, and the reasons why it is not understood completely."""

    commands: tuple[LineCommand, ...] = ()
    unclear: tuple[str, ...] = ()


def read_line(line: str) -> CommandLine:
    """The commands of a shell line, in order.

    The reader in `audit` recovers from anything, for it only reports. This one accepts a closed set of syntax nodes and gives a reason in
    `unclear` for whatever else it meets: a line with such a reason is never taken for one that is safe.
    """
    if len(line) > LONGEST:
        return CommandLine(unclear=(f"the command has more than {LONGEST:,} characters",))
    if _CONTROL.search(line):
        return CommandLine(unclear=("the command has control characters",))
    if _JOINING_BREAK.search(line):
        return CommandLine(unclear=("an escaped line break may join two words",))
    reader = _Reader(line)
    reader.read()
    return CommandLine(tuple(reader.commands), tuple(dict.fromkeys(reader.unclear)))


@dataclass(slots=True)
class _Reader:
    line: str
    commands: list[LineCommand] = field(default_factory=list)
    unclear: list[str] = field(default_factory=list)
    pending: list[Node] = field(default_factory=list)

    def read(self) -> None:
        # The scanner of the grammar reads out of bounds on other characters; one byte for each keeps offsets of tree and line equal.
        tree = Parser(_BASH).parse(_OTHER_LETTER.sub("x", self.line).encode())
        root = tree.root_node
        if root.has_error or self.line.rstrip(" \t").endswith("\\"):
            self.unclear.append("the command has a syntax that is not understood")
        if not _WHITE.fullmatch(self.line[: root.start_byte]) or not _WHITE.fullmatch(self.line[root.end_byte :]):
            self.unclear.append("a part of the command was not read")
        # Without recursion, because lines may be nested as deep as they are long.
        self.pending.append(root)
        while self.pending:
            self._visit(self.pending.pop())

    def _source_of(self, node: Node) -> str:
        return self.line[node.start_byte : node.end_byte]

    def _visit(self, node: Node) -> None:
        match node.type:
            case "command":
                self._command(node)
            case "redirected_statement":
                self._redirected(node)
            case "variable_assignment":
                self.commands.append(LineCommand(assignments=(self._assignment(node),)))
            case "comment":
                before = self.line[node.start_byte - 1 : node.start_byte]
                if before and before not in " \t\n;&|(":
                    self.unclear.append("a `#` may or may not begin a comment")
            case kind if kind in _STRUCTURES or kind in _SUBSTITUTIONS:
                self._structure(node)
            case kind:
                if node.is_named:
                    # The words of something that is not understood say nothing more about it.
                    if node.named_children or not self.unclear:
                        self.unclear.append(f"it uses {kind.replace('_', ' ')}")
                    self.pending += reversed(node.named_children)

    def _structure(self, node: Node) -> None:
        end = node.start_byte
        for child in node.children:
            if not _WHITE.fullmatch(self.line[end : child.start_byte]) or (
                not child.is_named and self._source_of(child).strip(" \t") not in _TOKENS
            ):
                self.unclear.append("it joins commands in a way that is not understood")
            end = child.end_byte
        self.pending += [child for child in reversed(node.children) if child.is_named]

    def _redirected(self, node: Node) -> None:
        """Redirections of a simple command belong to it; those of a compound one are listed as a command without words."""
        redirects = [child for child in node.named_children if child.type in _REDIRECTS]
        others = [child for child in node.named_children if child.type not in _REDIRECTS]
        if any(
            "\n" in self.line[one.end_byte : two.start_byte].replace("\\\n", "")
            for one, two in zip(node.children, node.children[1:], strict=False)
        ):
            self.unclear.append("a line break stands where the grammar expects none")
        found = tuple(redirection for redirect in redirects for redirection in self._redirection(redirect))
        if len(others) == 1 and others[0].type == "command":
            self._command(others[0], found)
        else:
            self.commands.append(LineCommand(redirections=found))
            self.pending += reversed(others)

    def _command(self, node: Node, more: tuple[Redirection, ...] = ()) -> None:
        words: list[Word] = []
        assignments: list[Word] = []
        redirections: list[Redirection] = []
        end = node.start_byte
        joined = False
        for child in node.children:
            gap = self.line[end : child.start_byte]
            joined = not gap and end > node.start_byte
            if not _BLANK.fullmatch(gap):
                self.unclear.append("a line break stands where the grammar expects none")
            end = child.end_byte
            if child.type == "variable_assignment":
                assignments.append(self._assignment(child))
            elif child.type in _REDIRECTS:
                redirections += self._redirection(child)
            elif joined:
                # The grammar splits some words; what bash makes of them is not certain.
                self.unclear.append("a word is not understood")
                words.append(Word(self._source_of(child), static=False))
            else:
                words.append(self._word(child.named_children[0] if child.type == "command_name" and child.named_children else child))
        self.commands.append(LineCommand(tuple(words), tuple(assignments), (*redirections, *more)))

    def _assignment(self, node: Node) -> Word:
        name, equals, value = self._source_of(node).partition("=")
        children = node.named_children
        if not equals or not name.isidentifier() or len(children) > 2 or any(child.type == "array" for child in children):
            self.unclear.append("it assigns to a part of a variable")
            self.pending += reversed(children)
            return Word(self._source_of(node), static=False)
        if len(children) < 2:
            return Word(f"{name}=", static=not value)
        word = self._word(children[1])
        return Word(f"{name}={word.text}", word.static and not word.glob and "~" not in value)

    def _redirection(self, node: Node) -> list[Redirection]:
        """The redirection of a node; more than one target means that the grammar took arguments for it."""
        targets = [child for child in node.named_children if child.type not in ("file_descriptor", "heredoc_body", "heredoc_end")]
        if node.type == "heredoc_redirect":
            # What a here-document holds is expanded or not by rules that the grammar follows only in part.
            self.unclear.append("it has a here-document")
            self.pending += [child for child in reversed(node.named_children) if child.type != "heredoc_start"]
            return [Redirection("<<", Word(self._source_of(targets[0]) if targets else ""))]
        if not targets:
            return [Redirection(self._source_of(node).strip(), Word(""))]
        if len(targets) > 1:
            self.unclear.append("arguments follow a redirection")
        operator = self.line[node.start_byte : targets[0].start_byte].strip()
        if not re.fullmatch(r"\d*(?:[<>]|>>|>\||[<>]&|&>|&>>|<<<)", operator):
            self.unclear.append("a redirection is not understood")
        return [Redirection(operator, self._word(target)) for target in targets]

    def _word(self, node: Node) -> Word:
        """The word of a node, with the commands in it queued."""
        text, bare, static = self._pieces(node)
        braces = bare[bare.find("{") : bare.rfind("}") + 1]
        if braces.startswith("{") and ("," in braces or ".." in braces):
            static = False
        if "~" in bare and (re.search(r"[=:]~", bare) or (bare[0] == "~" and bare[1:2] not in ("", "/"))):
            static = False
        glob = any(letter in bare for letter in "*?[")
        # A quoted tilde is a letter; one at the beginning without quotes is the home folder.
        if text.startswith("~") and not bare.startswith("~"):
            text = f"./{text}"
        return Word(text if static else text.replace(_DYNAMIC, "") + _DYNAMIC, static, glob)

    def _pieces(self, node: Node) -> tuple[str, str, bool]:
        """The text of a word, the same with every quoted character as `_`, and whether it is the same in every shell."""
        source = self._source_of(node)
        match node.type:
            case "word" | "number" | "special_character":
                bare = _ESCAPE.sub("_", source)
                if _ACTIVE.search(bare):
                    self.unclear.append("a word is not understood")
                    return source, bare, False
                return _ESCAPE.sub(r"\1", source), bare, True
            case "raw_string" if len(source) >= 2 and "'" not in source[1:-1]:
                return source[1:-1], "_" * (len(source) - 2), True
            case "ansi_c_string" if "\\" not in source:
                return source[2:-1], "_" * (len(source) - 3), True
            case "string" if source.startswith('"'):
                return self._quoted(node)
            case "concatenation":
                parts = [self._pieces(child) for child in node.children]
                if any(one.end_byte != two.start_byte for one, two in zip(node.children, node.children[1:], strict=False)):
                    self.unclear.append("a word is not understood")
                return "".join(part[0] for part in parts), "".join(part[1] for part in parts), all(part[2] for part in parts)
            case "simple_expansion":
                return _DYNAMIC, "_", False
            case "expansion" if re.fullmatch(r"\$\{\w+\}", source):
                return _DYNAMIC, "_", False
            case kind if kind in _SUBSTITUTIONS:
                self.pending.append(node)
                return _DYNAMIC, "_", False
            case kind if not node.is_named and not _ACTIVE.search(source):
                return source, source, True
            case kind:
                self.unclear.append(f"it uses {kind.replace('_', ' ')}")
                self.pending += reversed(node.named_children)
                return _DYNAMIC, "_", False

    def _quoted(self, node: Node) -> tuple[str, str, bool]:
        """The pieces of a string in double quotes: the text between its expansions must hold nothing that the shell would expand."""
        text, static, end = "", True, node.start_byte + 1
        inner = [child for child in node.named_children if child.type != "string_content"]
        for child in (*inner, None):
            plain = self.line[end : child.start_byte if child is not None else node.end_byte - 1]
            if _ACTIVE_IN_QUOTES.search(_ESCAPE_IN_QUOTES.sub("_", plain)) or "\\\n" in plain:
                self.unclear.append("a quoted text is not understood")
            text += _ESCAPE_IN_QUOTES.sub(r"\1", plain)
            if child is not None:
                text, static, end = text + self._pieces(child)[0], False, child.end_byte
        return text, "_" * len(text), static


_DEEPEST: Final = 3
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_DURATION: Final = re.compile(r"\d+(?:\.\d+)?[smhd]?")
_FIND_STARTERS: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
# Programs that are others by their first argument.
_MULTICALL: Final = frozenset({"busybox", "toybox", "coproc"})
# Programs that start what their arguments say in a way of their own.
_OWN_ARGUMENTS: Final = SHELLS | _MULTICALL | {"xargs", "find"}
_SPLIT_OPTION: Final = re.compile(r"^(?:-[a-zA-Z]*S|--split-string=)")
_XARGS_VALUED: Final = word_set(
    "-a -d -E -I -J -L -n -P -R -s --arg-file --delimiter --max-args --max-procs --max-chars --process-slot-var"
)
_XARGS_LONG: Final = _XARGS_VALUED | word_set(
    "--null --exit --no-run-if-empty --verbose --interactive --open-tty --show-limits --replace --eof --max-lines"
)
_UNKNOWN: Final = Word("\ufffd", static=False)


def started_commands(line: str) -> CommandLine:
    """The commands that a line starts. A wrapper that only passes a command on is replaced by it; any other is listed before it.

    The reasons in `unclear` cover scripts in arguments too.
    """
    commands: list[LineCommand] = []
    unclear: list[str] = []
    _expand_line(line, 0, commands, unclear)
    known = {command.texts for command in commands}
    # The reader of the audit recovers from syntax that the strict one refuses, and knows more wrappers.
    guessed = (each.command.words for each in executed(line) if each.command.words and each.command.words not in known)
    commands += (_inferred(tuple(map(Word, words))) for words in guessed)
    return CommandLine(tuple(commands), tuple(dict.fromkeys(unclear)))


def _expand_line(line: str, depth: int, commands: list[LineCommand], unclear: list[str]) -> None:
    parsed = read_line(line)
    unclear += parsed.unclear
    for command in parsed.commands:
        _expand(command, depth, commands, unclear)


def _expand(command: LineCommand, depth: int, commands: list[LineCommand], unclear: list[str]) -> None:
    inner = command
    while inner.words and (passed_on := _passed_on(inner)) is not None:
        commands.append(_inferred(inner.words))
        inner = passed_on
    if not inner.words:
        commands.append(inner)
        return
    if not inner.words[0].static or inner.words[0].glob:
        unclear.append("the program is not known before it runs")
    script = _script(inner)
    if script is None:
        commands += (inner, *_inner_commands(inner))
    elif depth >= _DEEPEST or not all(word.static and not word.glob for word in script):
        unclear.append("a script in an argument is not understood")
        commands.append(inner)
    else:
        commands += (_inferred(inner.words), replace(inner, words=()))
        _expand_line(" ".join(word.text for word in script), depth + 1, commands, unclear)


def _inferred(words: tuple[Word, ...]) -> LineCommand:
    return LineCommand(words, inferred=True)


def _passed_on(command: LineCommand) -> LineCommand | None:
    """The command that a wrapper without effects of its own runs; `None` for every other command and for options that are not known."""
    words, texts = command.words, command.texts
    if not all(word.static and not word.glob for word in words[:1]):
        return None
    match texts:
        case ("time" | "command" | "builtin", first, *_) if not first.startswith("-"):
            return replace(command, words=words[1:])
        case ("time", "-p", _, *_):
            return replace(command, words=words[2:])
        case ("nice", "-n", number, _, *_) if number.isdecimal():
            return replace(command, words=words[3:])
        case ("timeout", duration, _, *_) if _DURATION.fullmatch(duration):
            return replace(command, words=words[2:])
        case ("env", first, *_) if not first.startswith("-"):
            count = next((place for place, text in enumerate(texts[1:]) if not _ASSIGNMENT.fullmatch(text)), len(texts) - 1)
            # Without a command it prints the environment; its own name stays then.
            if count < len(texts) - 1:
                return replace(command, words=words[1 + count :], assignments=(*command.assignments, *words[1 : 1 + count]))
    return None


def _script(command: LineCommand) -> tuple[Word, ...] | None:
    """The words of the script that a shell or `eval` gets in its arguments; `None` for other programs, script files and options."""
    match command.texts:
        case ("eval", _, *_):
            return command.words[1:]
        case ("bash" | "sh", "-c", _, *_):
            return command.words[2:3]
        case _:
            return None


def _inner_commands(command: LineCommand) -> Iterator[LineCommand]:
    """Commands that a program starts, as far as its arguments name them."""
    texts = command.texts
    name = program_name(texts[0])
    if name == "xargs":
        place = after_options(texts, _XARGS_VALUED)
        # An option that is cut short may take a value, so that any later word can be the program.
        cut = any(text.startswith("--") and text.partition("=")[0] not in _XARGS_LONG for text in texts[1:place])
        for start in range(place, len(texts) if cut else min(place + 1, len(texts))):
            yield from _with_inner(_inferred((*_filled(command.words[start:], _replaced_by_xargs(texts[:place])), _UNKNOWN)))
    elif name == "find":
        for place, text in enumerate(texts):
            if text in _FIND_STARTERS:
                end = next((end for end in range(place, len(texts)) if texts[end] in (";", "+")), len(texts))
                yield from _with_inner(_inferred(_filled(command.words[place + 1 : end], "{}")))
    elif name in SHELLS or name == "env":
        # `env -S` splits its argument into words.
        for text in (_SPLIT_OPTION.sub("", text) for text in texts[1:]):
            for each in executed(text) if " " in text else ():
                yield _inferred(tuple(Word(word) for word in each.command.words))
    elif name in _MULTICALL:
        yield from _with_inner(_inferred(command.words[1:]))
    if name not in _OWN_ARGUMENTS:
        inside, _ = unwrapped(texts)
        if inside and inside != texts:
            yield from _with_inner(_inferred(command.words[len(texts) - len(inside) :]))


def _filled(words: tuple[Word, ...], mark: str) -> tuple[Word, ...]:
    """The words of a command in which another program puts names in place of a mark."""
    return tuple(replace(word, static=False) if mark in word.text else word for word in words)


def _replaced_by_xargs(options: tuple[str, ...]) -> str:
    """What `xargs` replaces by its input."""
    given = [(text, following) for text, following in pairwise((*options, "")) if text.startswith(("-I", "-J"))]
    return (given[-1][0][2:] or given[-1][1]) if given else "{}"


def _with_inner(command: LineCommand) -> Iterator[LineCommand]:
    if command.words:
        yield command
        yield from _inner_commands(command)
