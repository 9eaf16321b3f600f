"""Permission rules: their text, patterns and tool names, and which of several wins."""

import ast
import difflib
import json
import os
import re
import shlex
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from palimpsest.audit.shell_lines import program_name, word_set
from palimpsest.coding.tools.globs import glob_expression
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.text import lazy_pattern

Effect: TypeAlias = Literal["allow", "ask", "deny"]

ANY: Final = "*"
COMMAND_TOOLS: Final = frozenset({"bash"})
FETCH_TOOLS: Final = frozenset({"fetch", "web_fetch"})
PATH_TOOLS: Final = word_set("read edit write apply_patch grep glob")
"""Tools whose calls name files; a rule for another of our tools has no pattern."""
SERVED: Final = "mcp__"
"""The beginning of the names of tools of MCP servers, `mcp__SERVER__TOOL`; only rules for them may have `*` in the name."""
OWN_TOOLS: Final = (
    PATH_TOOLS
    | COMMAND_TOOLS
    | FETCH_TOOLS
    | word_set(
        "bash_output kill todo task_create task_update task_list task_get recall compact skill spawn_agent send_input wait_agent "
        "resume_agent close_agent remember memory tool_search set_state list_mcp_resources read_mcp_resource"
    )
)
# By the letters of the name, without case and underscores.
_ALIASES: Final = {
    **dict.fromkeys(word_set("shell exec execcommand localshell shellcommand unifiedexec runcommand runshellcommand shelltool"), "bash"),
    **dict.fromkeys(word_set("readfile readmanyfiles view viewfile viewimage notebookread ls listdir listdirectory listfiles"), "read"),
    **dict.fromkeys(word_set("multiedit notebookedit editfile strreplace strreplaceeditor replace"), "edit"),
    **dict.fromkeys(word_set("writefile create createfile"), "write"),
    **dict.fromkeys(word_set("patch"), "apply_patch"),
    **dict.fromkeys(word_set("grepfiles searchfilecontent"), "grep"),
    **dict.fromkeys(word_set("task agent"), "spawn_agent"),
    **dict.fromkeys(word_set("todowrite todoread updateplan"), "todo"),
    **dict.fromkeys(word_set("killshell killbash taskstop"), "kill"),
    "webfetch": "fetch",
    **dict.fromkeys(word_set("bashoutputtool taskoutput taskoutputtool agentoutputtool writestdin"), "bash_output"),
    "sendmessage": "send_input",
    "googlewebsearch": "websearch",
    "savememory": "remember",
    "listmcpresourcestool": "list_mcp_resources",
    "readmcpresourcetool": "read_mcp_resource",
    **{re.sub("_", "", name): name for name in OWN_TOOLS if name != "web_fetch"},
}
# A denial of one way to change a file, or to reach the web, is meant for all of them.
_WIDER: Final = {"write": "edit", "apply_patch": "edit", "websearch": "fetch"}
_FOREIGN: Final = word_set(
    "websearch exitplanmode enterplanmode slashcommand askuserquestion requestuserinput lsp enterworktree exitworktree croncreate "
    "crondelete cronlist monitor powershell structuredoutput teamcreate teamdelete jsrepl codesearch externaldirectory doomloop"
)
_SLIP_LETTERS: Final = 2
_LIKENESS: Final = 0.75
_LISTED: Final = "read, edit, write, grep, glob, bash, fetch, spawn_agent, mcp__SERVER__TOOL"


def tool_of_rule(name: str, effect: Effect, others: Collection[str] | None, where: str) -> str:
    """The tool that a rule is about, by our name. `others` are further tools there are; `None` if that is not known.

    Raises `BadInput` if there is no such tool.
    """
    if name == ANY or name.startswith(SERVED) or (others is not None and name in others):
        return name
    letters = re.sub("[_-]", "", name).casefold()
    found = _ALIASES.get(letters)
    if effect != "allow":
        found = _WIDER.get(letters if found is None else found, found)
    if found is not None:
        return found
    if letters in _FOREIGN:
        raise BadInput(f"there is no tool like {name} here, so the rule can be left out; the tools are {_LISTED}", where=where)
    if others is None:
        return name
    known = {*_ALIASES, *others}
    # A slip of the hand keeps most letters and the length; any other name means something that is not here.
    near = difflib.get_close_matches(letters, [each for each in known if abs(len(each) - len(letters)) <= _SLIP_LETTERS], 1, _LIKENESS)
    meant = _ALIASES.get(near[0], near[0]) if near else ""
    # The list or the option already says what the rule does.
    spelled = re.sub(r"^(?:allow|ask|deny)\s+", "", where.strip()).replace(name, meant, 1)
    advice = f"did you mean `{spelled}`?" if meant else f"the tools are {_LISTED}"
    raise BadInput(f"there is no tool {name}; {advice}", where=where)


def names_several(tool: str) -> bool:
    """Whether the tool name of a rule stands for several tools of MCP servers."""
    return ANY in tool or "__" not in tool.removeprefix(SERVED)


def name_matches(wanted: str, name: str) -> bool:
    """Whether the tool name of a rule is that of a tool: the same, or for tools of MCP servers also one with `*`, or the server alone."""
    if wanted == name or not (wanted.startswith(SERVED) and name.startswith(SERVED)):
        return wanted == name
    pattern = wanted if ANY in wanted else f"{wanted}__{ANY}"
    return names_several(wanted) and re.fullmatch(".*".join(map(re.escape, pattern.split(ANY))), name) is not None


OPEN_END: Final = ":*"
GLOB_LETTERS: Final = lazy_pattern(r"([*?\[\]{}\\])")
_PIECE: Final = lazy_pattern(r"\\(.)|'([^']*)'|\"((?:\\.|[^\"\\])*)\"|(\*)|(\s+)|(.)", re.DOTALL)
_OPERATOR: Final = lazy_pattern(r"[;|&<>()`\n]")
_ASSIGNMENT: Final = lazy_pattern(r"[A-Za-z_]\w*\+?=")
# Names of arguments, which other programs write in front of a pattern.
_FIELD: Final = lazy_pattern(r"(?:file|(?:file_|notebook_)?path|command|cmd|pattern|glob|regex|prefix|exact)\s*[:=](?!//)")
_KEYWORDS: Final = word_set("if then else elif fi for while until do done case esac function select { } [[ ]] !")
# Joins the words of a command, so that a pattern can tell a blank inside of a word from one between two.
_JOINT: Final = "\x1f"
# Options, and what may be their value, do not hide the word behind them: `git -C x push` is a `git push`.
_OPTIONS: Final = rf"(?:{_JOINT}-[^{_JOINT}]*(?:{_JOINT}[^-{_JOINT}][^{_JOINT}]*)?)*?{_JOINT}"
_OPTIONS_AT_END: Final = rf"(?:{_JOINT}-[^{_JOINT}]*(?:{_JOINT}[^-{_JOINT}][^{_JOINT}]*)?)*"
# Braces and commas that are not quoted, until it is known which of them are a choice.
_BARE: Final = {"{": "\x01", "}": "\x02", ",": "\x03"}
_CHOICE: Final = lazy_pattern("\x01([^\x01\x02]*\x03[^\x01\x02]*)\x02")
_DECISIONS: Final[dict[str, Effect]] = {"allow": "allow", "prompt": "ask", "forbidden": "deny"}


class CommandPattern(NamedTuple):
    """A command by its words, each as a regular expression; `literal` tells for each word whether it has no star."""

    words: tuple[str, ...]
    literal: tuple[bool, ...]
    open_end: bool


@lru_cache(maxsize=1_024)
def command_pattern(pattern: str) -> CommandPattern:
    """Read a command pattern. Raises `BadInput` if it can match no command, and says why."""
    text = pattern.removesuffix(OPEN_END)
    words, literal, started = [""], [True], False
    pieces: list[tuple[str, ...]] = _PIECE.findall(text)
    for escaped, single, double, star, blank, letter in pieces:
        if blank:
            words, literal, started = ([*words, ""], [*literal, True], False) if started else (words, literal, False)
            continue
        started = True
        if star:
            words[-1], literal[-1] = f"{words[-1]}.*", False
            continue
        if letter and letter in "'\"\\":
            raise BadInput("the command of the rule cannot be split into words (a quote is not closed)", where=pattern)
        if letter and _OPERATOR.match(letter):
            raise BadInput(f"a rule names one command, so `{letter}` in it matches nothing; write one rule a command", where=pattern)
        if letter == "$" or "$" in re.sub(r"\\.", "", double):
            raise BadInput("a variable in a rule matches nothing; rules go by the words as they are written", where=pattern)
        words[-1] += _BARE.get(letter) or re.escape(escaped or single or re.sub(r'\\([\\"$`])', r"\1", double) or letter)
    if not started:
        words, literal = words[:-1], literal[:-1]
    if not words:
        raise BadInput("the command of the rule has no words", where=pattern)
    if " " in words[0] and "/" not in words[0]:
        raise BadInput(f"a program has no blank in its name; leave out the quotes: {shlex.split(text)[0]}", where=pattern)
    if (field := _FIELD.match(text)) and field[0] != text:
        raise BadInput(f"the rule matches nothing; leave out `{field[0]}`", where=pattern)
    mark = re.search("[,:]", _with_choices(words[0]).replace("(?:", "")) if literal[0] and "/" not in words[0] else None
    if mark is not None:
        raise BadInput(f"a program has no `{mark[0]}` in its name, so the rule matches nothing; write one rule a command", where=pattern)
    if re.match(r"/?\^|/.*/$", text) or any(escaped.isalpha() for escaped, *_ in pieces):
        raise BadInput("a command is no regular expression; write its words, and `:*` for any further arguments", where=pattern)
    if not "".join(text.split()).isprintable() or re.match(r"\[\s*['\"]|\{[^,]*\}", text):
        raise BadInput(f"no command is written {text!a}, so the rule matches nothing; write its words", where=pattern)
    if literal[0] and _ASSIGNMENT.match(words[0]):
        raise BadInput("a rule begins with the program; leave out the variables", where=pattern)
    if text.split()[0] in _KEYWORDS:
        raise BadInput(f"`{text.split()[0]}` is a word of the shell and no program, so the rule matches nothing", where=pattern)
    return CommandPattern(tuple(map(_with_choices, words)), tuple(literal), pattern.endswith(OPEN_END))


def _with_choices(word: str) -> str:
    """A word with its bare braces as a choice, or as themselves where there is nothing to choose."""
    chosen = _CHOICE.sub(lambda found: f"(?:{found[1].replace(_BARE[','], '|')})", word)
    return "".join({mark: re.escape(letter) for letter, mark in _BARE.items()}.get(letter, letter) for letter in chosen)


def command_matches(pattern: CommandPattern, words: tuple[str, ...]) -> bool:
    """Whether a command is one that a rule allows: its words one by one, and the program exactly."""
    if len(words) < len(pattern.words) or (len(words) > len(pattern.words) and not pattern.open_end):
        return False
    return all(re.fullmatch(want, word, re.DOTALL) for want, word in zip(pattern.words, words, strict=False))


def command_restricted(pattern: CommandPattern, words: tuple[str, ...]) -> bool:
    """Whether a command is one that a rule restricts: further arguments, options in between and a folder of the program do not help."""
    text = _joined(words, pattern)
    return re.fullmatch(f"{_OPTIONS.join(_wanted(pattern))}(?:[{_JOINT}:].*)?", text, re.DOTALL | re.IGNORECASE) is not None


def command_may_become(pattern: CommandPattern, known: tuple[str, ...], glob: str = "") -> bool:
    """Whether words that are not known yet may make a command one that a rule restricts; `known` are those before the first of them.

    Where that one is a `glob`, it only becomes names that it matches.
    """
    if not known:
        return True
    text, wanted = _joined(known, pattern), _wanted(pattern)
    for count in range(1, len(wanted)):
        begun = re.fullmatch(f"{_OPTIONS.join(wanted[:count])}{_OPTIONS_AT_END}", text, re.DOTALL | re.IGNORECASE)
        if begun is not None and (not glob or _may_match(glob, wanted[count])):
            return True
    return False


def _may_match(glob: str, wanted: str) -> bool:
    """Whether a name that a glob matches can be a word of a pattern, or an option in front of it; it can unless the two are plain."""
    if glob[0] in "*?[-" or ".*" in wanted or "(?:" in wanted:
        return True
    wider = re.sub(r"\[.*", "*", glob)
    return fnmatchcase(re.sub(r"\\(.)", r"\1", wanted).casefold(), wider.casefold())


def _wanted(pattern: CommandPattern) -> tuple[str, ...]:
    # Others write ` *` for any further arguments, and `.*` as in a regular expression.
    words = tuple(word.replace(r"\..*", ".*") for word in pattern.words)
    return words[:-1] if len(words) > 1 and words[-1] == ".*" else words


def _joined(words: tuple[str, ...], pattern: CommandPattern) -> str:
    program = words[0] if "/" in pattern.words[0] else program_name(words[0])
    return _JOINT.join((program, *words[1:]))


def foreign_command(text: str, where: str) -> tuple[str, Effect | None]:
    """The command pattern of `prefix_rule(pattern=["git", ["push", "pull"]], decision="forbidden")`, and what it decides.

    Raises `BadInput` if it is not understood.
    """
    try:
        call = ast.parse(text, mode="eval").body
        given = {each.arg: ast.literal_eval(each.value) for each in call.keywords} if isinstance(call, ast.Call) else {}
        return _words_of(given["pattern"]) + OPEN_END, _DECISIONS[given["decision"]] if "decision" in given else None
    except (SyntaxError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadInput('the rule is not understood; write `prefix_rule(pattern=["rm"], decision="forbidden")`', where=where) from error


def _words_of(pattern: object) -> str:
    if not isinstance(pattern, list | tuple):
        raise TypeError(pattern)
    return " ".join(list_of_words(each) if isinstance(each, list | tuple) else shlex.quote(each) for each in pattern)


def list_of_words(choices: list[str] | tuple[str, ...]) -> str:
    """A choice of words as a pattern has it. Raises `ValueError` if a word has letters that a choice cannot hold."""
    if not choices or any(re.fullmatch(r"[\w./:=@%+-]+", each) is None for each in choices):
        raise ValueError(choices)
    return choices[0] if len(choices) == 1 else f"{{{','.join(choices)}}}"


def words_of_list(pattern: str) -> str:
    """A command that is written as a JSON list, `["git", "push"]`, as words; other patterns as they are."""
    try:
        words = json.loads(pattern) if pattern.startswith("[") else None
    except ValueError:
        return pattern
    return shlex.join(map(str, words)) if isinstance(words, list) and words else pattern


def check_path_pattern(pattern: str, where: str) -> None:
    """Raise `BadInput` if a path pattern can match no file, with the right spelling where it is known."""
    plain = re.sub(r"\\.", "__", pattern)
    parts = plain.split("/")
    wildcard = next((place for place, part in enumerate(parts) if GLOB_LETTERS.search(part)), len(parts))
    reason = ""
    if not pattern.isprintable():
        reason = "a path has no control characters"
    elif re.search(r"\\(?:[A-Za-z0-9]|$)|[^/]\\\.|\\\\|\\\*+$", pattern):
        reason = f"folders are separated by `/`, and a dot needs no `\\`: {re.sub(r'^[A-Za-z]:', '/', pattern.replace(chr(92), '/'))}"
    elif plain[0] in "'\"`" and plain[-1] == plain[0]:
        reason = f"leave out the quotes: {pattern[1:-1]}"
    elif plain[0] + plain[-1] == "()" or re.match(r"\[\s*['\"]", plain):
        reason = "write the path alone, and `\\(` or `\\[` for a bracket itself"
    elif field := _FIELD.match(plain):
        reason = f"leave out `{field[0]}`"
    elif plain[0] == "^" or plain[-1] == "$":
        reason = "a path is no regular expression; `*` stands for any letters, `**` for any folders"
    elif re.search(r"[@+?*]\(", plain):
        reason = "a choice is written in braces, `{a,b}`; and `\\(` is a bracket itself"
    elif "|" in plain:
        reason = f"a choice is written in braces: {{{pattern.replace('|', ',')}}}; and `\\|` is the letter itself"
    elif plain[0] == "!":
        reason = "a rule cannot be negated; write a second rule that allows the file"
    elif re.match(r"\$\{?\w|%\w+%", plain):
        reason = "variables are not expanded; write `~/` for your home folder, `./` for the project, and `\\$` for the letter itself"
    elif re.match(r"[A-Za-z]:/", plain):
        reason = f"there are no drives; write `/{plain[2:]}`, or `./{plain}` for a folder of this name"
    elif plain.endswith(OPEN_END):
        reason = f"`{OPEN_END}` is for commands; write `{plain.removesuffix(OPEN_END)}*`"
    elif re.search(r"\[[!^]?\[:\w+:\]", plain):
        reason = "a class names its letters, such as `[a-z]`"
    elif re.match(r"~[^/]", plain):
        reason = "the home folder is written `~/`; name that of another user by its path, `//home/NAME`"
    elif re.match(r"[A-Za-z][\w+.-]*://", plain):
        reason = "a path is no address; write an absolute path with two slashes, `//home/NAME`"
    elif _is_list(plain):
        reason = "one rule has one pattern; write the others as rules of their own, and `\\,` for a comma itself"
    elif re.search(r"\[[^\]]*$", re.sub(r"\[[!^]?\]?[^\]/]*\]", "", plain)):
        reason = "a class is not closed; write `\\[` for a bracket itself"
    elif ".." in parts[wildcard:]:
        reason = "`..` behind a wildcard matches nothing"
    if reason:
        raise BadInput(f"the pattern can match no file: {reason}", where=where)
    try:
        re.compile(glob_expression(pattern))
    except (PalimpsestError, re.error) as error:
        raise BadInput(f"the pattern cannot be read: {getattr(error, 'message', error)}", where=where) from error


def _is_list(pattern: str) -> bool:
    """Whether a pattern looks like several: parentheses that end before they begin, or a comma that is not in braces."""
    depth = [pattern[: place + 1].count("(") - pattern[: place + 1].count(")") for place in range(len(pattern))]
    return min(depth) < 0 or depth[-1] != 0 or ";" in pattern or "," in re.sub(r"\{[^{}]*\}", "", re.sub(r"\{[^{}]*\}", "", pattern))


def escaped_path(path: str) -> str:
    """The pattern that matches exactly one path, and what lies in it."""
    return re.sub(r"([*?\[\]{}\\(),|])", r"\\\1", path)


class PathForm(NamedTuple):
    """One way to read a path pattern: a glob of absolute paths, or of paths in the project."""

    glob: str
    absolute: bool = False
    floating: bool = False


def path_forms(pattern: str, *, wide: bool, root: Path | None, home: Path | None) -> Iterator[PathForm]:
    """The ways to read a path pattern; `wide` is how a rule that restricts is read.

    `//x` and `~/x` are absolute; `/x` is absolute or in the project; `./x` and `x/y` are in the project; `x` alone is in every folder of
    it if the rule restricts, and else at its top. A beginning without wildcards that leads through a link is followed too.
    """
    inside = pattern.removeprefix("/") if pattern.startswith("/") else pattern
    forms: list[PathForm] = []
    if pattern.startswith("//"):
        forms.append(PathForm(_normal(f"/{pattern.lstrip('/')}"), absolute=True))
    elif pattern == "~" or pattern.startswith("~/"):
        forms.append(PathForm(_normal(f"{escaped_path(str(home or Path.home()))}{pattern[1:]}"), absolute=True))
    else:
        if pattern.startswith("/"):
            forms.append(PathForm(_normal(pattern), absolute=True))
        normal = _normal(inside)
        if normal == ".." or normal.startswith("../"):
            if root is not None:
                forms.append(PathForm(_normal(f"{escaped_path(str(root))}/{inside}"), absolute=True))
        else:
            forms.append(PathForm(normal, floating=wide and "/" not in pattern.rstrip("/")))
    for form in forms:
        yield form
        if wide and root is not None and (followed := _followed(form, root)) is not None:
            yield followed


def _normal(glob: str) -> str:
    """A pattern without `.`, empty and, where they are certain, `..` parts; the project itself is an empty one."""
    found = os.path.normpath(glob) if glob else "."
    return "" if found == "." else re.sub("^//", "/", found)


def _followed(form: PathForm, root: Path) -> PathForm | None:
    """The form with the links at its beginning followed; `None` if there are none."""
    start = literal_start(form.glob)
    if not start:
        return None
    lexical = os.path.join(root, start)  # noqa: PTH118  # of texts, of which one may be absolute
    real = os.path.realpath(lexical)
    return None if real == lexical else PathForm(escaped_path(real) + form.glob[len(start) :], absolute=True)


def literal_start(glob: str) -> str:
    """The folders at the beginning of a pattern that have no wildcards."""
    parts = glob.split("/")
    count = next((place for place, part in enumerate(parts) if GLOB_LETTERS.search(part)), len(parts))
    return "/".join(parts[:count])


@lru_cache(maxsize=2_048)
def path_expression(form: PathForm, *, wide: bool) -> re.Pattern[str]:
    """The compiled expression of a form. A folder stands for all that lies in it."""
    glob = form.glob.rstrip("/")
    if wide and glob.endswith("/**"):
        glob = glob[:-3]
    # `**/x` is meant for granted folders too, whose files are known by their absolute paths.
    before = "(?:.*/)?" if form.floating else "/?" if wide and glob.startswith("**/") else ""
    # Some file systems ignore case, so a rule that restricts does too.
    body = glob_expression(unicodedata.normalize("NFC", glob) if wide else glob) if glob else "[^/]*"
    return re.compile(f"{before}{body}(?:/.*)?", re.DOTALL | (re.IGNORECASE if wide else re.NOFLAG))


def names_folder(pattern: str) -> bool:
    """Whether a pattern is one place in the project or on the disk without wildcards, or all that lies in it."""
    return "/" in pattern.rstrip("/") and not GLOB_LETTERS.search(pattern.rstrip("/").removesuffix("/**"))


Specificity: TypeAlias = tuple[int, ...]

LONGEST: Final = 2_000
MOST_PROJECT_RULES: Final = 1_000
"""Rules of a project; each is tried at every decision."""
_EFFECTS: Final[dict[str, Effect]] = {"allow": "allow", "ask": "ask", "deny": "deny"}
_STRICTNESS: Final[dict[Effect, int]] = {"allow": 0, "ask": 1, "deny": 2}
_FORM: Final = lazy_pattern(r"(?:(allow|ask|deny)\s+)?(\*|mcp__[\w.*-]*|[A-Za-z][\w.-]*)\s*(?:\((.*)\))?", re.DOTALL)
_DOUBLED: Final = lazy_pattern(r"(allow|ask|deny)\s+(allow|ask|deny)\s+(.+)", re.DOTALL)
_DOMAIN: Final = lazy_pattern(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*(?::\d+)?")
_PREFIX_RULE: Final = "prefix_rule"


class Rule(Struct, frozen=True):
    """Allows, denies or asks for the calls of a tool. An empty pattern matches every call of it.

    The pattern of `bash` is a command by its words, with `:*` at its end for any further arguments and `*` for one word; of `fetch` a
    domain, with `*.` in front for those below it; of every other tool a path glob. `edit` and `read` stand for all tools that change and
    that read files, `mcp__SERVER` and `mcp__SERVER__*` for all tools of an MCP server. Allowances are read narrowly, the others widely.
    """

    tool: str
    pattern: str = ""
    effect: Effect = "allow"

    def __str__(self) -> str:
        """The text form, which `parse_rule` reads."""
        target = f"{self.tool}({self.pattern})" if self.pattern else self.tool
        return target if self.effect == "allow" else f"{self.effect} {target}"


def parse_rule(text: str, tools: Collection[str] | None = None) -> Rule:
    """The rule of a text such as `bash(git status)`, `deny edit(secrets/**)` or `ask *`, also as Claude Code and Codex write it.

    `tools` are the tools that there are beside our own; without it, a name that is not known may be that of any tool. Raises `BadInput`
    if the text cannot be read, names no tool or can match nothing, with the right spelling where it is known.
    """
    doubled = _DOUBLED.fullmatch(text.strip()) if len(text) <= LONGEST else None
    if doubled is not None:
        raise BadInput(f"the rule says {doubled[1]} and {doubled[2]}; write `{doubled[3]}` into permissions.{doubled[2]}", where=text)
    form = _FORM.fullmatch(text.strip()) if len(text) <= LONGEST else None
    if form is None:
        raise BadInput("not a rule; write a tool name, then a pattern in parentheses, such as `deny bash(rm:*)`", where=text[:80])
    if form[2] == SERVED:
        raise BadInput("the rule names no server; write `mcp__SERVER`, or `mcp__*` for all", where=text)
    effect, name, pattern = _EFFECTS[form[1] or "allow"], form[2], (form[3] or "").strip()
    if form[3] is not None and not pattern:
        raise BadInput("the pattern of the rule is empty; leave out the parentheses to match every call", where=text)
    if name == _PREFIX_RULE:
        found, decided = foreign_command(text.strip()[text.strip().index(_PREFIX_RULE) :], text)
        if decided not in (None, effect) and form[1] is not None:
            raise BadInput(f"the rule says {form[1]} and {decided}; write it into permissions.{decided}", where=text)
        rule = Rule("bash", found, decided or effect)
    else:
        tool = tool_of_rule(name, effect, tools, text)
        rule = Rule(tool, "" if pattern == ANY or (pattern == "**" and tool in PATH_TOOLS) else pattern, effect)
    return _checked(rule, text) if rule.pattern else rule


def _checked(rule: Rule, where: str) -> Rule:
    """The rule with its pattern as ours write it. Raises `BadInput` if the pattern cannot be read or can match nothing."""
    if rule.tool in COMMAND_TOOLS:
        rule = Rule(rule.tool, re.sub(r"\s*:\s*\*+$", OPEN_END, words_of_list(rule.pattern)), rule.effect)
        try:
            read = command_pattern(rule.pattern)
        except BadInput as error:
            raise BadInput(error.message, where=where) from error
        if rule.effect == "allow" and not read.literal[0]:
            advice = f"; write `bash({rule.pattern.partition('*')[0]}:*)`" if rule.pattern[0] != ANY else ""
            raise BadInput(f"an allowed program is named exactly{advice}", where=where)
        return rule
    if rule.tool in FETCH_TOOLS:
        return Rule(rule.tool, _domain(rule.pattern, where), rule.effect)
    if rule.tool == ANY:
        raise BadInput("a rule for every tool has no pattern", where=where)
    if rule.tool.startswith(SERVED) or (rule.tool in OWN_TOOLS and rule.tool not in PATH_TOOLS):
        raise BadInput(f"a rule for {rule.tool} has no pattern; write `{Rule(rule.tool, effect=rule.effect)}`", where=where)
    check_path_pattern(rule.pattern, where)
    return rule


def _domain(pattern: str, where: str) -> str:
    """The domain of a rule of `fetch`; empty for every domain."""
    domain = pattern.lower().removeprefix("domain:").strip().removesuffix(".")
    if domain == ANY:
        return ""
    if not domain.isascii():
        # An address names a host by these letters only.
        with suppress(UnicodeError):
            domain = domain.encode("idna").decode()
    if _DOMAIN.fullmatch(domain) is None:
        try:
            host = urlsplit(domain).hostname or ""
        except ValueError:
            host = ""
        example = host if _DOMAIN.fullmatch(host) else "docs.python.org"
        raise BadInput(f"the pattern of a fetch rule is a domain, such as `fetch({example})` or `fetch(*.python.org)`", where=where)
    return domain


def deny_rules(texts: Iterable[str], tools: Collection[str] | None = None) -> tuple[Rule, ...]:
    """The rules of a project, which can only deny. Raises `BadInput` for any other text, because a denial must not be left out."""
    given = tuple(texts)
    if len(given) > MOST_PROJECT_RULES:
        raise BadInput(f"the project has {len(given):,} permission rules; at most {MOST_PROJECT_RULES:,} are used", where=given[0][:80])
    rules = tuple(parse_rule(text, tools) for text in given)
    for rule, text in zip(rules, given, strict=True):
        if rule.effect != "deny":
            raise BadInput("a project can only deny; add this rule yourself if you want it", where=text)
    return rules


def command_rule(words: tuple[str, ...], *, open_end: bool) -> str:
    """The text of a rule that allows a command, and with `open_end` its further arguments; empty if a text cannot say it exactly."""
    if not words or " " in words[0] or any(word == ANY or word.endswith(OPEN_END) or not word.isprintable() for word in words):
        return ""
    text = str(Rule("bash", shlex.join(words) + (OPEN_END if open_end else "")))
    return text if len(text) <= LONGEST else ""


def command_specificity(rule: Rule, words: tuple[str, ...]) -> Specificity | None:
    """How specifically a rule of `bash` names a command; `None` if it does not match.

    An allowance is read narrowly, word by word; a rule that restricts widely, see `command_restricted`. A restriction with a star in its
    middle, such as `git * --force`, yields to a rule for exactly this command only.
    """
    if not rule.pattern:
        return _unconditional(rule)
    pattern = command_pattern(rule.pattern)
    if not (command_matches if rule.effect == "allow" else command_restricted)(pattern, words):
        return None
    literal = sum(pattern.literal)
    if literal == len(pattern.words) == len(words) and not pattern.open_end:
        return 2, 2, literal
    last = len(pattern.words) - (pattern.words[-1] == ".*")
    return 2, int(rule.effect != "allow" and not all(pattern.literal[:last])), literal


def command_may_match(rule: Rule, known: tuple[str, ...], glob: str) -> bool:
    """Whether a rule may restrict a command that begins with these words and goes on with words that are not known, see there."""
    return rule.effect != "allow" and bool(rule.pattern) and command_may_become(command_pattern(rule.pattern), known, glob)


def path_specificity(rule: Rule, path: str, root: Path | None = None, home: Path | None = None) -> Specificity | None:
    """How specifically a path rule names a file, given relative to the project or absolute; `None` if it does not match.

    An allowance is read narrowly, a rule that restricts widely, see `path_forms`. A restriction of a folder yields to an allowance of
    something in it; any other to one that names the very file only.
    """
    if not rule.pattern:
        return _unconditional(rule)
    wide = rule.effect != "allow"
    name = unicodedata.normalize("NFC", path) if wide else path
    full = name if name.startswith("/") or root is None else f"{root}/{name}".rstrip("/.") if name == "." else f"{root}/{name}"
    for form in path_forms(rule.pattern, wide=wide, root=root, home=home):
        of_form = full if form.absolute or form.floating else "" if name == "." else name
        if path_expression(form, wide=wide).fullmatch(of_form) is None:
            continue
        plain = re.sub(r"\\(.)", r"\1", form.glob)
        is_literal = not GLOB_LETTERS.search(re.sub(r"\\.", "", form.glob))
        if is_literal and (of_form == plain or (form.floating and of_form.endswith(f"/{plain}"))):
            return 2, 2, len(plain)
        if wide and not names_folder(rule.pattern):
            return 2, 1, len(rule.pattern)
        wildcard = GLOB_LETTERS.search(rule.pattern)
        return 2, 0, len(rule.pattern) if wildcard is None else wildcard.start()
    return None


def check_reach(rule: Rule, folders: Iterable[Path]) -> None:
    """Raise `BadInput` if a rule allows files that lie in none of the folders that tools may use, and so allows nothing."""
    if rule.effect != "allow" or rule.tool not in PATH_TOOLS or not rule.pattern:
        return
    places = [folder.resolve() for folder in folders]
    for form in path_forms(rule.pattern, wide=False, root=places[0], home=None):
        start = Path(literal_start(form.glob)).resolve()
        if not form.absolute or any(start == place or place in start.parents or start in place.parents for place in places):
            return
    raise BadInput("no tool reaches the files of this rule; grant their folder with --add-dir", where=str(rule))


def exact_path(path: str) -> str:
    """The pattern that allows exactly one file; empty if a text cannot say it."""
    pattern = escaped_path(path)
    try:
        check_path_pattern(pattern, path)
    except BadInput:
        return ""
    return pattern if path_specificity(Rule("edit", pattern), path) is not None else ""


def domain_specificity(rule: Rule, domain: str) -> Specificity | None:
    """How specifically a rule of `fetch` names a domain, in lower case; `None` if it does not match.

    A rule that restricts covers what lies below the domain, on every port.
    """
    if not rule.pattern:
        return _unconditional(rule)
    wanted = rule.pattern
    if rule.effect != "allow":
        plain = wanted.removeprefix("*.")
        name = domain if ":" in plain else domain.rpartition(":")[0] if re.search(r":\d+$", domain) else domain
        return (2, plain.count(".") + 1, int(name == wanted)) if name == plain or name.endswith(f".{plain}") else None
    if wanted.startswith("*."):
        return (2, wanted.count("."), 0) if domain.endswith(wanted[1:]) else None
    return (2, wanted.count(".") + 1, 1) if domain == wanted else None


def _unconditional(rule: Rule) -> Specificity:
    if rule.tool.startswith(SERVED) and names_several(rule.tool):
        return 0, len(rule.tool.partition(ANY)[0]), 0
    return (0 if rule.tool == ANY else 1), 0, 0


def names_tool(rule: Rule, name: str) -> bool:
    """Whether a rule is about a tool by its name."""
    return name_matches(rule.tool, name)


def winner(matches: Iterable[tuple[Rule, Specificity | None]]) -> Rule | None:
    """The most specific rule of those that match; among equals the strictest. `None` if no rule matches."""
    ranked = [(specificity, _STRICTNESS[rule.effect], rule) for rule, specificity in matches if specificity is not None]
    return max(ranked, key=lambda each: each[:2])[2] if ranked else None
