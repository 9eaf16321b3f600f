"""Finds starts of other programs outside of the modules that may start them: git in one place, shells and all else in few."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

# Module below `src`: what it starts, and why it may.
ALLOWED = {
    "palimpsest/stores/shadow_git.py": "git: the only place, with a git folder of ours",
    "palimpsest/agent/processes.py": "commands of the agent in their sandbox, below fixed scripts that end all that they started",
    "palimpsest/agent/hook_commands.py": "/bin/sh with hooks, which the user configured or trusted",
    "palimpsest/coding/tools/sandbox.py": "a probe of each sandbox, once",
    "palimpsest/coding/tools/search.py": "ripgrep, found outside of the project, or this Python with a module of ours",
    "palimpsest/coding/tools/pdf.py": "this Python with a module of ours",
    "palimpsest/coding/mcp/connection.py": "MCP servers, which the user configured or trusted",
    "palimpsest/stores/weights.py": "this Python, to load weights of a model",
    "pal/gateway/workers.py": "this program itself",
    "pal/cli/gateway.py": "the program that the user named, and this program itself",
    "pal/cli/hook.py": "this program itself",
    "pal/cli/secret_search.py": "this Python with a module of ours",
    "pal/cli/memory_changes.py": "the editor of the user",
    "pal/terminal/programs.py": "a shell line that the user typed or wrote in a command of their own",
    "pal/terminal/input.py": "programs of the clipboard, with fixed words",
    "pal_lab/bench/processes.py": "this program itself and /bin/ps with fixed words, measured",
    "pal_lab/bench/live.py": "this program itself, measured",
    "pal_lab/bench/suite.py": "catches the time limits of what the others start",
    "pal_lab/bench/engine.py": "this program itself and ripgrep, measured",
    "pal_lab/bench/replaying.py": "this program itself, measured",
    "pal_lab/bench/peers.py": "a program of others that is measured",
}
GIT_ROOM = "palimpsest/stores/shadow_git.py"
_MODULES = frozenset({"subprocess", "pty", "multiprocessing", "_posixsubprocess", "sh", "pexpect", "plumbum", "git", "pygit2"})
_CALLS = re.compile(
    r"(?:exec[lv]p?e?|spawn[lv]p?e?|posix_spawnp?|system|popen|fork|forkpty|startfile|create_subprocess_(?:exec|shell)|ProcessPoolExecutor)$"
)
# Words that are the name of a program where they begin a command.
_PROGRAMS = re.compile(r"(?:/(?:usr/)?bin/)?(?:git|ssh|scp)(?: |$)")


def process_starts(sources: Path) -> Iterator[str]:
    """Yield a line for each start of a program outside of its room, and for each room that starts nothing any more."""
    used: set[str] = set()
    for path in sorted(sources.rglob("*.py")):
        name = path.relative_to(sources).as_posix()
        starts = list(_starts(ast.parse(path.read_text(encoding="utf-8"))))
        used |= {name} if starts else set()
        if name not in ALLOWED:
            yield from (
                f"{name}:{line}: starts a program ({what}); only the modules of tests/support/documents/process_starts.py may"
                for line, what in starts
            )
        if name != GIT_ROOM and starts:
            yield from (
                f"{name}:{line}: names {word!r}; git is started by {GIT_ROOM} alone, and ssh by nothing" for line, word in _commands(path)
            )
    yield from (f"{name}: is allowed to start programs and starts none" for name in sorted(ALLOWED.keys() - used))


def _starts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, each.name) for each in names if each.name.partition(".")[0] in _MODULES)
                yield from (
                    (node.lineno, f"{each.name} under another name") for each in names if each.asname and each.name in {"os", "asyncio"}
                )
            case ast.ImportFrom(module=str(module), names=names):
                if module.partition(".")[0] in _MODULES:
                    yield node.lineno, module
                if module in {"os", "asyncio", "asyncio.subprocess", "posix", "concurrent.futures"}:
                    yield from ((node.lineno, each.name) for each in names if _CALLS.match(each.name) or each.name == "*")
            case ast.Attribute(attr=name) if _CALLS.match(name) and _is_module(node.value):
                yield node.lineno, name
            case ast.Call(func=ast.Attribute(attr=name)) if name in {"subprocess_exec", "subprocess_shell"}:
                yield node.lineno, name
            case ast.Call(
                func=ast.Name(id="__import__") | ast.Name(id="import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                if module.partition(".")[0] in _MODULES:
                    yield node.lineno, module
            case ast.Constant(value=str(text)) if re.search(r"\bos\.(?:exec|spawn|system|popen|fork)", text) and "import" in text:
                yield node.lineno, "a script that does"
            case _:
                pass


def _is_module(node: ast.expr) -> bool:
    """Whether a function belongs to a module that starts programs, and is not a method of that name of something else."""
    names = {"os", "asyncio", "subprocess", "posix", "futures", "concurrent"}
    return (isinstance(node, ast.Name) and node.id in names) or (isinstance(node, ast.Attribute) and node.attr in names)


def _commands(path: Path) -> Iterator[tuple[int, str]]:
    """Yield words that begin a command: the first of a sequence, or of a text."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Tuple(elts=[ast.Constant(value=str(word)), *_]) | ast.List(elts=[ast.Constant(value=str(word)), *_]) if (
                _PROGRAMS.match(word)
            ):
                yield node.lineno, word
            case ast.Call(args=[ast.Constant(value=str(word)), *_]) if _PROGRAMS.match(word):
                yield node.lineno, word
            case _:
                pass
