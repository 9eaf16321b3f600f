"""Evidence for notes: commands of the user to remember, results that come from the workspace, and texts that can be quoted."""

import posixpath
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

import msgspec

from palimpsest.audit.shell_lines import SHELLS, after_options, executed, program_name, word_set
from palimpsest.audit.tool_calls import action_with, shell_line
from palimpsest.core.errors import CannotFold
from palimpsest.core.events import Event, ModelReplied, ToolReturned, UserSaid
from palimpsest.core.items import Content, Part, Text, ToolCall, Value
from palimpsest.core.redaction import redact
from palimpsest.core.text import utc_text
from palimpsest.core.tokens import estimate
from palimpsest.memory.changes import LONGEST_QUOTE_WORDS, AddNote, Draft, QuotableEvent, Speaker
from palimpsest.memory.note import KINDS, LONGEST_ABOUT, UNTOLD, Note, NoteKind, time_of

Reply = TypeVar("Reply", bound=msgspec.Struct)

RESULT_CHARACTERS: Final = 200
# Characters of a message of the user and of a reply; the middle of a longer one is left out.
MESSAGE_CHARACTERS: Final = 8_000
REPLY_CHARACTERS: Final = 4_000
MOST_IN_MANIFEST: Final = 200


def sources_of(
    session: str, events: Iterable[Event], is_untrusted: Callable[[ToolReturned], bool], *, results: int = RESULT_CHARACTERS
) -> tuple[QuotableEvent, ...]:
    """Return the events of a session that can be quoted, without secrets; tool results are cut to their first characters.

    `is_untrusted` says whether a result brings text from outside of the workspace, such as a web page. After such a result the replies of
    the turn are untrusted too, for they may repeat it. What the user typed of an input is the user's; its other texts are
    attachments, and untrusted.
    """
    found: list[QuotableEvent] = []
    is_tainted = False
    for event in events:
        body = event.body
        read: list[tuple[Speaker, str]]
        match body:
            case UserSaid(parts=parts):
                is_tainted = False
                written, *attached = typed_and_attached(parts)
                read = [("user", _shortened(written, MESSAGE_CHARACTERS)), ("untrusted", "\n".join(attached)[:results])]
            case ModelReplied(parts=parts, purpose="turn"):
                read = [("untrusted" if is_tainted else "assistant", _shortened(_texts(parts), REPLY_CHARACTERS))]
            case ToolReturned():
                comes_from_outside = is_untrusted(body)
                is_tainted = is_tainted or comes_from_outside
                read = [("untrusted" if comes_from_outside else "tool", _texts(body.result.parts)[:results])]
            case _:
                continue
        found += [QuotableEvent(f"{session}:{event.seq}", who, redact(text), iso_time(event.at)) for who, text in read if text.strip()]
    return tuple(found)


def newest_within(sources: Iterable[QuotableEvent], tokens: int) -> tuple[QuotableEvent, ...]:
    """Return the newest sources that have together at most so many tokens, in their order; the texts of the user are kept first."""
    # By place: an input and its attachment have one id.
    kept: set[int] = set()
    left = tokens
    listed = list(sources)
    for speakers in (("user",), ("assistant", "tool", "untrusted")):
        for place in range(len(listed) - 1, -1, -1):
            size = estimate(line_of_source(listed[place]))
            if listed[place].speaker in speakers and size <= left:
                left -= size
                kept.add(place)
    return tuple(source for place, source in enumerate(listed) if place in kept)


def typed_and_attached(parts: tuple[Part, ...]) -> tuple[str, ...]:
    """Return what the user typed of an input, empty if nothing was, and then the texts that came with it.

    Of texts without a mark the first is what the user typed.
    """
    texts = [part for part in parts if isinstance(part, Text)]
    typed = bool(texts) and not texts[0].attached
    return ("" if not typed else texts[0].text, *(part.text for part in texts[typed:]))


def line_of_source(source: QuotableEvent) -> str:
    """Return a source as a prompt shows it: its id, who is quoted and the text, with the marks of our own tags made harmless."""
    return f"[{source.id}] {source.speaker}: {escaped(source.text)}"


def manifest(notes: Iterable[Note]) -> tuple[str, ...]:
    """Return one line for each of the newest 200 active notes, newest first."""
    active = sorted((note for note in notes if note.status == "active"), key=lambda note: (time_of(note.when), note.name), reverse=True)
    return tuple(f"[{note.kind}] {note.name} ({note.when}): {escaped(note.about)}" for note in active[:MOST_IN_MANIFEST])


def stated_object(parts: Iterable[object], reply: type[Reply], otherwise: str) -> Reply:
    """Return the outermost object that a reply states; models like to put a fence or a sentence around it.

    Raises `CannotFold`, which begins with `otherwise`, if there is none of this form.
    """
    text = "".join(part.text for part in parts if isinstance(part, Text))
    start, end = text.find("{"), text.rfind("}")
    try:
        return msgspec.json.decode(text[start : end + 1] if 0 <= start < end else text, type=reply)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise CannotFold(f"{otherwise}: {error}", kind="malformed") from error


def escaped(text: str) -> str:
    """Return a text in which no tag can begin or end, so that it cannot close the block in which it is shown."""
    return text.replace("<", "‹").replace(">", "›")


def _texts(parts: tuple[Content, ...]) -> str:
    return "\n".join(part.text for part in parts if isinstance(part, Text))


def _shortened(text: str, characters: int) -> str:
    half = characters // 2
    return text if len(text) <= characters else f"{text[:half]}\n…\n{text[-half:]}"


def iso_time(milliseconds: int) -> str:
    """Return a time in milliseconds since 1970 as ISO 8601 in UTC; milliseconds are stated, so that notes of one second have an order."""
    rest = milliseconds % 1_000
    return utc_text(milliseconds, f"%Y-%m-%dT%H:%M:%S.{rest:03}Z" if rest else "%Y-%m-%dT%H:%M:%SZ")


# Of the four kinds this one is for how to work, holds in the project, and fades as slowly as what is known about the user.
DEFAULT_KIND: Final[NoteKind] = "feedback"
# The form of a command. A word with a comma (a name, "ok") and a word of courtesy may stand before it, and a sign or `that` ends it:
# without one "remember" begins other sentences too ("remember me?"). In Chinese a space or the word of courtesy will do.
_COMMAND: Final = re.compile(
    rf"""\s*(?:\w{{1,20}}\s*[,，]\s*)?
    (?:
        (?:(?:please|pls|kindly|also|and|always)\b\s*,?\s*){{0,3}}
        remember(?:\s+(?:this|the\s+following))?(?:\s+for\s+(?:later|next\s+time|the\s+future))?
        (?:\s*[:：]|[ \t]*\n|\s*[,，](?=\s)|\s+[-–—]+(?=\s)
          |\s+that(?![\w'’-])\s*[:：,，]?|(?=\s+(?:{"|".join(KINDS)})\s*[:：]))
      | (?:请|請)(?:你|您|帮我|幫我|务必|務必){{0,3}}(?:记住|記住)(?!了)[\s:：，,]*
      | (?:麻烦|麻煩)?(?:你|您|帮我|幫我)?(?:记住|記住)(?:[\s:：，,]+)
    )
    \s*(?:(?P<kind>{"|".join(KINDS)})\s*[:：])?\s*(?P<text>.*)""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_COURTESY: Final = re.compile(r"\W*(?:please|pls|thanks|thank\s+you|ok|okay|谢谢|謝謝)\W*", re.IGNORECASE)
_FENCE: Final = re.compile(r"^[ \t]*(?:```+|~~~+)[^\n]*\n?", re.MULTILINE)
_CITATION: Final = re.compile(r"^[ \t]*>[ \t]?", re.MULTILINE)
# Where a sentence ends: at a sign before white space, at one of Chinese, or at a line unless the next goes on in lower case; the sign of
# a quotation after which the sentence goes on ends none.
_SENTENCE_END: Final = re.compile(r"[.!]+[)\]]*(?=\s)|[.!]+[\"'”’)\]]+(?=\s+[^\sa-z])|[。！]+(?![”’」』]+\S)|\n(?![ \t]*[a-z])")
# A question: its sign, behind which other signs may stand (`?!`, `?)`, `?*`, an emoji), a tag, or at once the next word, unless the word
# with the sign is code; or its particle. One inside quotation marks is none if the sentence goes on behind them.
_QUESTION: Final = re.compile(
    r"""[?؟⁇⁈⁉‽](?!://)(?:[^\w\s\"'”’`]{0,20}(?=\s|$) | [^\w\s,，;；:：、]{0,20}(?=[ \t]*(?:\n|$)|\s+[^\sa-z])
        | (?=</?[a-z]) | (?P<joined>(?![\"'”’」』`])(?=[^\w\s]*\w)))
      | [？﹖](?![”’」』]+\S) | [¿❓❔⸮܆՞፧\u037e]
      | [吗嗎](?![^\w\s]{0,20}[\"'”’」』`])
      | [呢么麼](?:[.!~～…]+(?=\s|$)|[,，。！]|[ \t]*(?=\n|$))""",
    re.VERBOSE,
)
# What follows the sign in code and addresses: `?a=b`, `colou?r`, `x?.y`, `https?://`.
_CODE_BEHIND: Final = re.compile(r"[?!]*(?:[\w.%-]+=|[A-Za-z](?!\w)|\.[^\W\d_])")
_OPENING: Final = frozenset("\"'“‘「『`")
_CLOSING: Final = frozenset("\"'”’」』`")
_EXPRESSION_LETTERS: Final = frozenset("\\[^$|")


class UserStatement(Value, frozen=True):
    """What the user asked to remember: the kind of the note and its text, with the event as it can be quoted."""

    kind: NoteKind
    text: str
    source: QuotableEvent

    def change(self) -> AddNote:
        """Return the note as a change that quotes the user: it is judged like any other."""
        draft = Draft(kind=self.kind, about=first_line(self.text), body=self.text, backstory=UNTOLD["asked"])
        return AddNote(draft, (self.source.id,), " ".join(self.text.split()[:LONGEST_QUOTE_WORDS]))


def statements(session: str, events: Iterable[Event]) -> Iterator[UserStatement]:
    """Yield what the user asked to remember in these events of a session, oldest first, without secrets.

    A message counts if the user typed it in the form of a command: `remember: …`, `remember that …`, `remember user: …` (which names the
    kind of the note; without one it is `feedback`), 记住：…, each also behind a word of courtesy. Questions are never noted: the note
    ends before the first one. Attachments of the message are no part of it.
    """
    for event in events:
        if not isinstance(event.body, UserSaid):
            continue
        found = _COMMAND.fullmatch(typed_and_attached(event.body.parts)[0])
        # The marks of pasted blocks go: the user asked for these words, also if they are pasted.
        text = "" if found is None else redact(_CITATION.sub("", _FENCE.sub("", _before_question(found["text"])))).strip()
        if found is not None and _COURTESY.fullmatch(text) is None and any(unicodedata.category(letter)[0] in "LN" for letter in text):
            kind = next((kind for kind in KINDS if kind == (found["kind"] or "").lower()), DEFAULT_KIND)
            yield UserStatement(kind, text, QuotableEvent(f"{session}:{event.seq}", "user", text, iso_time(event.at)))


def _before_question(text: str) -> str:
    """Return a text up to its first sentence that is a question."""
    if text[:1] in _OPENING and text.rstrip()[-1:] in _CLOSING:
        # A quotation that is all of the text is judged by what it says.
        return text if _before_question(text.rstrip()[1:-1]) == text.rstrip()[1:-1] else ""
    signs = (found.start() for found in _QUESTION.finditer(text) if found["joined"] is None or not _is_code(text, found.start()))
    sign = next(signs, None)
    if sign is None:
        return text
    # A sign on a line of its own asks what stands before that line.
    asked = next((place for place in range(sign, 0, -1) if text[place - 1].isalnum()), 0)
    ends = (end.end() for end in _SENTENCE_END.finditer(text) if end.end() < asked)
    return text[: max(ends, default=0)]


def _is_code(text: str, sign: int) -> bool:
    """Whether the sign at a place inside a word belongs to code, an address or an expression."""
    if text.count("`", 0, sign) % 2 or _CODE_BEHIND.match(text, sign + 1):
        return True
    before = (text[max(0, sign - LONGEST_ABOUT) : sign].rsplit(None, 1) or [""])[-1]
    return "://" in before or (not text[sign + 1].isalpha() and not _EXPRESSION_LETTERS.isdisjoint(before))


def first_line(text: str) -> str:
    """Return the first line of a text as the line that a note is listed by."""
    line = " ".join(next((line for line in text.splitlines() if line.strip()), "").split())
    return line if len(line) <= LONGEST_ABOUT else f"{line[: LONGEST_ABOUT - 1]}…"


IsBelow = Callable[[str], bool]
"""Says whether a path lies in the workspace."""

# Programs that read files, run the project's own code or check it. Any other one counts as one that may bring a text from elsewhere.
_LOCAL_COMMAND: Final = word_set(
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
        if elsewhere or (words and not _is_local_command(words, is_below)):
            return False
        if not all(map(is_below, _named_paths(words))):
            return False
    return True


def _is_local_command(words: tuple[str, ...], is_below: IsBelow) -> bool:
    name = program_name(words[0])
    if words[0].startswith(("./", "../", "/")) and name not in _LOCAL_COMMAND:
        # A program of the project itself.
        return is_below(words[0])
    if name in SHELLS:
        # What a shell got as text has been read already, so that this one runs a file.
        return len(words) > 1 and all(is_below(word) for word in words[1:] if not word.startswith("-"))
    if name not in _LOCAL_COMMAND:
        return False
    if name in _INLINE:
        return _runs_file(words, _INLINE[name])
    if name == "find" and (places := [place for place, word in enumerate(words) if word in _EXECUTES]):
        return all(_is_local_command(words[place + 1 :], is_below) for place in places if words[place + 1 :])
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


IsUntrusted = Callable[[ToolReturned], bool]

# Tools that work on the files of a workspace, of our own program and of those whose sessions are imported. Any other tool is untrusted:
# web, MCP, sub-agents, recalled sessions, and what another package brings.
_LOCAL: Final = word_set(
    "read view cat read_file readfile view_file open_file read_many_files notebookread view_image edit multiedit multi_edit notebookedit "
    "apply_patch applypatch patch str_replace replace edit_file search_replace str_replace_editor str_replace_based_edit_tool file_editor "
    "text_editor write write_file create_file write_to_file grep glob ls list rg grep_search search_files search_dir find_file file_search "
    "search_file_content list_dir list_directory list_files bash shell exec exec_command local_shell local_shell_call execute_bash "
    "execute_command run_command run_shell_command run_in_terminal terminal shell_command container_exec unified_exec run_terminal_cmd"
)
_NAMESPACES: Final = ("functions.", "functions/", "tools.", "tools/")
_HARMLESS_PATHS: Final = frozenset({"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty"})
# Calls that are remembered while events are read; a result follows its call closely.
_MOST_CALLS: Final = 10_000


def untrusted_results(events: Iterable[Event], root: str, *more: str) -> IsUntrusted:
    """Return a function that says whether a result brings text from outside of the workspace, by the calls in these events.

    The workspace is the folder `root`, in which relative paths begin, and `more` folders that the user granted. A result counts as one of
    it only if its call is among the events, its tool is one that works on files or runs commands, every path that it names lies in these
    folders, and each command in it is one that stays on this machine. For a session of another program `root` is the folder that it states.
    """
    calls: dict[str, ToolCall] = {}
    for event in events:
        if isinstance(event.body, ModelReplied):
            calls |= {part.call_id: part for part in event.body.parts if isinstance(part, ToolCall)}
            if len(calls) > _MOST_CALLS:
                calls = dict(list(calls.items())[-_MOST_CALLS:])

    def is_untrusted(returned: ToolReturned) -> bool:
        call = calls.get(returned.result.call_id)
        return call is None or not _is_local(call, returned, (root, *more))

    return is_untrusted


def written_paths(call: ToolCall, returned: ToolReturned, root: str) -> tuple[str, ...]:
    """Return the absolute paths of the files that a call changed."""
    return tuple(_absolute(access.path, root) for access in action_with(call, returned).paths if access.changes)


def _is_local(call: ToolCall, returned: ToolReturned, roots: tuple[str, ...]) -> bool:
    name = call.tool.lower().replace("-", "_")
    for namespace in _NAMESPACES:
        name = name.removeprefix(namespace)
    # A tool whose declaration says something else than its name is not the known one.
    if name not in _LOCAL or call.kind:
        return False
    action = action_with(call, returned)
    paths = {access.path for access in action.paths} | set(returned.paths)
    if not all(_is_below(path, roots) for path in paths):
        return False
    return action.kind != "command" or is_local_line(shell_line(call) or action.command, lambda path: _is_below(path, roots))


def _is_below(path: str, roots: tuple[str, ...]) -> bool:
    if path in _HARMLESS_PATHS:
        return True
    if not roots[0] or path.startswith(("~", "$")) or "://" in path:
        return False
    place = _absolute(path, roots[0])
    folders = [posixpath.normpath(root).rstrip("/") for root in roots]
    return any(place == folder or place.startswith(f"{folder}/") for folder in folders)


def _absolute(path: str, root: str) -> str:
    return posixpath.normpath(posixpath.join(root, path))
