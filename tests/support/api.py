"""Prints the reference: what `palimpsest` and `palimpsest.testing` export, with signatures and docstrings, read from the source."""

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import palimpsest

PACKAGE = Path(__file__).parents[2] / "src" / "palimpsest"
_HEAD = """# API reference

What `import palimpsest` and `palimpsest.testing` export, printed from the docstrings by `./run api`.
Everything else can be imported from its module, and may move between minor versions.
"""
_TESTING = "palimpsest.testing"
_GROUPS = {
    "The agent": ("Agent", "Answer", "Limits", "AgentTool", "ToolOutput", "tool_from", "Hook", "HookCall", "HookResult"),
    "In a loop that you have": ("Conversation", "compact", "Compacted", "EditRecord"),
    "A loop of your own": ("Session", "Environment", "call", "Profile", "profile", "recover"),
    "Sessions and logs": ("Home", "Log", "View", "Item", "undo", "restore", "rewind"),
    "Events": (
        *("Event", "SessionOpened", "UserSaid", "ContextStated", "Statement", "ModelReplied", "ToolStarted", "ToolReturned", "ViewEdited"),
        "TextDelta",
    ),
    "Contents and edits": ("Text", "ToolCall", "ToolResult", "Fold", "Put", "Keep", "Mask", "Unmask", "Insert"),
    "Requests, models and prices": ("encode", "Encoder", "Params", "Tool", "Scripted", "card", "cost"),
    "Errors": ("PalimpsestError",),
}


def main() -> None:
    """Print the page. Raises `SystemExit` with a line if an exported name has no group, or the reverse."""
    grouped = {name for names in _GROUPS.values() for name in names}
    different = sorted(grouped ^ set(palimpsest.__all__))
    if different:
        sys.exit(f"tests/support/api.py: give a group to each exported name: {', '.join(different)}")
    print(_HEAD)
    for title, names in _GROUPS.items():
        print(f"## {title}\n")
        for name in names:
            print(
                "\n".join(_entry(name, palimpsest._HOMES[name].removeprefix("palimpsest.")))
            )  # the table of `palimpsest`, so that nothing is imported
    print("## Contract tests\n")
    for name, module in _testing():
        print("\n".join(_entry(name, f"testing.{module}")))


def _testing() -> Iterator[tuple[str, str]]:
    tree = ast.parse((PACKAGE / "testing" / "__init__.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((alias.name, node.module.removeprefix(f"{_TESTING}.")) for alias in node.names)


def _entry(name: str, module: str) -> Iterator[str]:
    """The lines on one name, found where it is defined."""
    node, where = _definition(name, module)
    yield f"### {name}\n"
    if isinstance(node, ast.ClassDef):
        yield f"```text\n{_class_line(node)}\n```\n"
        yield f"{_docstring(node)}\n"
        yield from _methods(node)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield f"```text\n{_signature(node)}\n```\n"
        yield f"{_docstring(node)}\n"
    else:
        yield f"```text\n{ast.unparse(node)}\n```\n"
    yield f"From `{where}`.\n"


def _definition(name: str, module: str) -> tuple[ast.stmt, str]:
    path = PACKAGE.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return node, f"palimpsest.{module}"
        target = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(target, ast.Name) and target.id == name:
            return node, f"palimpsest.{module}"
        if isinstance(node, ast.ImportFrom) and node.module and any(alias.name == name for alias in node.names):
            return _definition(name, node.module.removeprefix("palimpsest."))
    raise LookupError(f"{name} is not defined in {path}")


def _class_line(node: ast.ClassDef) -> str:
    """The class with its fields, or with the arguments of its `__init__`."""
    made = next((each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None)
    if made is not None:
        return _signature(made).replace("__init__", node.name, 1).removesuffix(" -> None")
    fields = [ast.unparse(each) for each in node.body if isinstance(each, ast.AnnAssign) and not ast.unparse(each.target).startswith("_")]
    return _wrapped(node.name, fields, "")


def _methods(node: ast.ClassDef) -> list[str]:
    lines: list[str] = []
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and not each.name.startswith("_"):
            is_property = any(ast.unparse(mark) == "property" for mark in each.decorator_list)
            shown = each.name if is_property else f"{each.name}()"
            if any(ast.unparse(mark).endswith(".setter") for mark in each.decorator_list):
                continue
            lines.append(f"- `{shown}`: {' '.join(_docstring(each).partition(chr(10) * 2)[0].split())}")
    return [*lines, ""] if lines else []


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    arguments = [text for text in _arguments(node.args) if text != "self"]
    start = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return _wrapped(f"{start}{node.name}", arguments, f" -> {ast.unparse(node.returns)}" if node.returns is not None else "")


def _wrapped(name: str, arguments: list[str], end: str) -> str:
    line = f"{name}({', '.join(arguments)}){end}"
    return line if len(line) <= 120 else f"{name}(\n" + "".join(f"    {each},\n" for each in arguments) + f"){end}"


def _arguments(arguments: ast.arguments) -> Iterator[str]:
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    yield from (_argument(each, default) for each, default in zip(plain, defaults, strict=True))
    if arguments.vararg is not None:
        yield f"*{ast.unparse(arguments.vararg)}"
    elif arguments.kwonlyargs:
        yield "*"
    yield from (_argument(each, default) for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True))


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(argument) + ("" if default is None else f" = {ast.unparse(default)}")


def _docstring(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    text = inspect.cleandoc(ast.get_docstring(node) or "")
    # A line of a docstring that explains a field is a line of its own on the page too.
    return re.sub(r"\n(?=[a-z_]+(?:, [a-z_]+)*: )", "\n- ", text)


if __name__ == "__main__":
    main()
