"""Every command that a message, a help text or a document names exists, takes its options, and runs with the message's own arguments."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from corpus import GOLDEN
from pal_runs import LONG, SMALL, Pal, edited, long

import palimpsest
from pal.cli.main import cli
from palimpsest.exchange.finding import find_sources
from palimpsest.exchange.formats import FORMATS, format_named

SOURCE = Path(palimpsest.__file__).parents[1]
ROOT = SOURCE.parent
# A command in backticks, or on a line of its own in an example.
QUOTED = re.compile(r"`(pal(?: [^`\n]*)?)`")
EXAMPLE = re.compile(r"^ {2,}(pal [^\n]*)$", re.MULTILINE)
# What stands behind a command: an explanation, or what the shell does with the output.
AFTER = re.compile(r" {2,}| \| | > | # ")
# Stands for a value that is known only when the message is made.
VALUE = "VALUE"


def _commands_in(text: str) -> Iterator[str]:
    for line in (*QUOTED.findall(text), *EXAMPLE.findall(text)):
        yield AFTER.split(line)[0]


def _texts_of(path: Path, *, messages: bool = False) -> Iterator[str]:
    """The string literals of a module, with `messages` without docstrings; what an f-string inserts is a value."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source if "pal " in source else "")
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    firsts = [node.body[0] for node in ast.walk(tree) if isinstance(node, documented) and node.body]
    docstrings = {id(first.value) for first in firsts if isinstance(first, ast.Expr)} if messages else set()
    inner = docstrings | {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else VALUE for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.value


def problem_of(line: str) -> str:
    """What is wrong with a command line as written: an unknown command or option, or too many words; empty if nothing is."""
    words = shlex.split(line.replace("…", " "))[1:]
    command: click.Command = cli
    context = click.Context(cli, info_name="pal")
    if words and words[0].startswith("-") and words[0] not in {"-h", "--help", "-V", "--version"}:
        words.insert(0, "ask")
    while words and isinstance(command, click.Group) and not words[0].startswith("-") and not words[0].isupper():
        name = words.pop(0)
        if name == "help":
            continue
        found = command.get_command(context, name)
        if found is None:
            return f"no command {name}"
        command = found
    return _wrong_word(command, context, words)


def _wrong_word(command: click.Command, context: click.Context, words: list[str]) -> str:
    options = {
        name: each for each in command.get_params(context) if isinstance(each, click.Option) for name in (*each.opts, *each.secondary_opts)
    }
    options |= {name: click.Option([name], is_flag=True) for name in ("-h", "--help")}
    places = [each.nargs for each in command.get_params(context) if isinstance(each, click.Argument)]
    given = 0
    # What stands behind it belongs to another program.
    words = words[: words.index("--")] if "--" in words else words
    while words:
        word = words.pop(0).strip("[](),;")
        name, _, value = word.partition("=")
        if name in options:
            if not options[name].is_flag and not value and words:
                words.pop(0)
        elif re.fullmatch(r"--?[a-z][a-z-]*", name) and not command.context_settings.get("ignore_unknown_options"):
            return f"no option {name}"
        else:
            given += bool(word)
    many = -1 in places or isinstance(command, click.Group)
    return "" if many or given <= sum(places) else f"{given} words, at most {sum(places)}"


def _lacks_words(line: str) -> bool:
    """Whether a command line as it stands would be answered with a missing argument."""
    words = shlex.split(line)[1:]
    if not words or words[0].startswith("-") or "help" in words[0]:
        return False
    command, context = cli.get_command(click.Context(cli), words.pop(0)), click.Context(cli)
    while words and isinstance(command, click.Group):
        command = command.get_command(context, words.pop(0))
    required = (
        [] if command is None else [each for each in command.get_params(context) if isinstance(each, click.Argument) and each.required]
    )
    return len([word for word in words if not word.startswith("-")]) < len(required)


def test_every_command_that_the_source_names_exists_and_takes_its_options() -> None:
    named = [
        (str(path.relative_to(SOURCE)), line)
        for path in sorted(SOURCE.rglob("*.py"))
        for text in _texts_of(path)
        if "pal " in text
        for line in _commands_in(text)
    ]

    assert len(named) > 100
    assert [(place, line, problem) for place, line in named if (problem := problem_of(line))] == []


def test_a_command_in_a_message_has_the_words_that_it_needs() -> None:
    named = [
        (str(path.relative_to(SOURCE)), line)
        for path in sorted(SOURCE.rglob("*.py"))
        for text in _texts_of(path, messages=True)
        for line in _commands_in(text)
    ]

    assert len(named) > 60
    assert [(place, line) for place, line in named if _lacks_words(line)] == []


def test_every_command_that_a_document_names_exists_and_takes_its_options() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    named = [(page.name, line) for page in pages for line in _commands_in(page.read_text(encoding="utf-8"))]

    assert len(named) > 100
    assert [(place, line, problem) for place, line in named if (problem := problem_of(line))] == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("pal sesions", "no command sesions"),
        ("pal memory serch VALUE", "no command serch"),
        ("pal show VALUE --requst 3", "no option --requst"),
        ("pal show VALUE 3", "2 words, at most 1"),
        ("pal show VALUE --request 3 --json", ""),
        ("pal -p PROMPT --model NAME", ""),
    ],
)
def test_the_check_of_a_command_line_finds_what_is_wrong(line: str, problem: str) -> None:
    assert problem_of(line) == problem


# Mistakes of every kind; each message is searched for commands, and those are run as they stand.
MISTAKES = (
    ("sesions",),
    ("show",),
    ("show", "lst"),
    ("show", "nothing-like-it"),
    ("show", SMALL, "--requst", "1"),
    ("show", SMALL, "--request", "99"),
    ("show", "FOLDER"),
    ("show", "CLAUDE"),
    ("context", SMALL, "--at", "999"),
    ("audit", "nothing-like-it"),
    ("undo", LONG),
    ("undo", SMALL, "999"),
    ("restore", SMALL, "999.0"),
    ("rewind", SMALL, "999"),
    ("pin", SMALL, "999.0"),
    ("fork", "nothing-like-it"),
    ("search", "wordthatisnowhere"),
    ("why", SMALL, "wordthatisnowhere"),
    ("import", "FOLDER"),
    ("export", SMALL, "--to", "nowhere"),
    ("replay", "nothing-like-it"),
    ("config", "--nothing"),
    ("memory", "show", "nothing-like-it"),
    ("memory", "serch", "x"),
    ("delete", "nothing-like-it"),
    ("doctor",),
    ("trust",),
    ("init",),
)


def test_every_command_that_a_message_names_runs_as_it_stands(tmp_path: Path) -> None:
    pal = Pal(tmp_path / "home")
    edited(pal.home)
    long(pal.home, events=60)
    (tmp_path / "empty folder").mkdir()
    transcript = tmp_path / "work.jsonl"
    line = '{"type":"user","uuid":"a","parentUuid":null,"sessionId":"s","message":{"role":"user","content":"hi"}}\n'
    transcript.write_text(line)
    places = {"FOLDER": str(tmp_path / "empty folder"), "CLAUDE": str(transcript)}

    advice: dict[str, tuple[str, ...]] = {}
    for words in MISTAKES:
        result = pal(*(places.get(word, word) for word in words), PAL_OFFLINE="1")
        advice |= dict.fromkeys(QUOTED.findall(result.stderr), words)
    codes = {line: pal(*shlex.split(line)[1:], PAL_OFFLINE="1").exit_code for line in advice if "ID" not in line.split()}

    assert len(codes) >= 10
    assert f"pal import {transcript}" in codes
    assert {line: code for line, code in codes.items() if code not in {0, 1}} == {}


def test_an_empty_home_is_answered_with_a_command_that_fills_it(tmp_path: Path) -> None:
    said = Pal(tmp_path)("show", "last").stderr

    assert QUOTED.findall(said) == ["pal demo --home DIR"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("sesions",), "No such command 'sesions'. Did you mean 'sessions'? See `pal --help`"),
        (("memory", "serch"), "memory: No such command 'serch'. Did you mean 'search'? See `pal memory --help`"),
        (("show", SMALL, "--requst", "1"), "show: No such option '--requst'. Did you mean '--request'? See `pal show --help`"),
        (("show", "lst"), "HOME/sessions: there is no session 'lst'; did you mean 'last'?"),
        (("show", SMALL.replace("-", "_")), f"HOME/sessions: there is no session '20310401_090000_aaaa'; did you mean '{SMALL}'?"),
        (("zzz",), "No such command 'zzz'; see `pal --help`"),
    ],
)
def test_a_misspelled_word_is_answered_with_the_nearest(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    pal = Pal(tmp_path)
    edited(pal.home)

    result = pal(*words)
    assert (result.exit_code, result.stderr) == (2, f"pal: {said.replace('HOME', str(tmp_path))}\n")


def test_help_of_a_command_is_its_help_and_a_large_v_is_the_version(tmp_path: Path) -> None:
    pal = Pal(tmp_path)

    assert pal("help", "show").stdout == pal("show", "--help").stdout
    assert pal("help", "memory", "add").stdout == pal("memory", "add", "--help").stdout
    assert pal("help").stdout == pal("--help").stdout
    assert pal("-V").stdout == pal("--version").stdout != ""


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("notes.txt", b"some words", "this names no session: text of no known program"),
        ("data.json", b'{"a": 1}', "this names no session: JSON of no known program"),
        ("tool", b"\x7fELF\x00\x01", "this names no session: binary data"),
        ("packed.jsonl", b"\x1f\x8b\x08rest", "this names no session: compressed data"),
        ("new.jsonl", b"", "this names no session: it is empty"),
        ("gone.jsonl", None, "there is no such file"),
    ],
)
def test_a_path_that_is_no_session_is_called_what_it_is(tmp_path: Path, name: str, content: bytes | None, said: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)

    for command in ("show", "context", "verify"):
        result = Pal(tmp_path / "home")(command, str(path))
        assert (result.exit_code, result.stderr) == (2, f"pal: {path}: {said}\n")


def _one_file_of_each_format() -> dict[str, Path]:
    """A golden file for each format whose sessions are single files."""
    sources = find_sources(FORMATS, [GOLDEN]).sources
    return {source.format: Path(source.path) for source in reversed(sources) if Path(source.path).is_file()}


def test_the_transcript_of_every_reader_is_called_what_it_is(tmp_path: Path) -> None:
    pal, files = Pal(tmp_path), _one_file_of_each_format()

    assert len(files) >= 6
    for form, path in files.items():
        said = f"pal: {path}: this is {format_named(form).title}: `pal import {shlex.quote(str(path))}` it first\n"
        assert (pal("show", str(path)).stderr, pal("context", str(path)).stderr) == (said, said)


def test_every_format_has_a_title_of_its_own_for_a_file_that_must_be_imported_first() -> None:
    assert len({form.title for form in FORMATS if form.title.startswith(("a ", "an "))}) == len(FORMATS)
