"""The commands that a shell line starts: those inside `bash -c`, `eval`, `env`, `timeout`, `xargs` and `find -exec` included."""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Final

from palimpsest.audit.tools.executed import SHELLS, after_options, executed, program_name, unwrapped, word_set
from palimpsest.tools.permissions.command_line import CommandLine, LineCommand, Word, read_line

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
