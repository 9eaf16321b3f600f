"""What a tool call does, for the tools of every program we know and for some that we do not."""

import msgspec
import pytest
from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from palimpsest.audit.commands import FileAccess
from palimpsest.audit.tool_calls import (
    Action,
    ToolClass,
    action_of,
    action_with,
    declared_class,
    declared_classes,
    exit_of,
    shell_line,
    tool_class,
)
from palimpsest.core.events import ToolReturned
from palimpsest.core.items import Form, Text, ToolCall, ToolResult
from palimpsest.wire.request import Tool, ToolKind

PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n--- x\n+y\n*** Add File: d/b.py\n+1\n*** End Patch"
FORMS: tuple[Form, ...] = ("json", "free", "shell")
TOOLS = ["Read", "Bash", "apply_patch", "TodoWrite", "mcp__x__y", "shell"]


@every_case(
    ("tool", "kind"),
    [
        ("Read", "read"),
        ("read_file", "read"),
        ("view", "read"),
        ("Edit", "edit"),
        ("MultiEdit", "edit"),
        ("apply_patch", "edit"),
        ("replace", "edit"),
        ("Write", "write"),
        ("write_file", "write"),
        ("Bash", "command"),
        ("exec_command", "command"),
        ("run_shell_command", "command"),
        ("execute_bash", "command"),
        ("Grep", "search"),
        ("glob", "search"),
        ("rg", "search"),
        ("Task", "agent"),
        ("spawn_agent", "agent"),
        ("TodoWrite", "plan"),
        ("update_plan", "plan"),
        ("todowrite", "plan"),
        ("recall", "recall"),
        ("WebFetch", "other"),
        ("functions.exec_command", "command"),
        ("mcp__filesystem__read_text_file", "read"),
        ("mcp__filesystem__edit_file", "edit"),
        ("mcp__fs__directory_file_save", "write"),
        ("mcp__desk__run_terminal", "command"),
        ("mcp__tracker__create", "other"),
        ("mcp__tracker__create_issue", "other"),
        ("mcp__playwright__browser_click", "other"),
        ("", "other"),
    ],
)
def test_a_tool_has_a_class_by_its_name(tool: str, kind: ToolClass) -> None:
    assert tool_class(tool) == kind


def test_what_was_declared_comes_before_any_name() -> None:
    read = ToolCall("c", "Read", '{"path":"a.py"}')
    assert action_of(read) == Action("read", (FileAccess("a.py", "read"),))
    assert action_of(replace(read, kind="edit")) == Action("edit", (FileAccess("a.py", "edit"),))
    assert action_of(replace(read, kind="a class of a later version")) == action_of(read)


@every_case(
    ("tool", "kind", "found"),
    [
        ("stock", "reads", "read"),
        ("find_stock", "reads", "search"),
        ("save_file", "reads", "read"),
        ("stock", "edits", "edit"),
        ("write_file", "edits", "write"),
        ("run_command", "reports", "other"),
        ("spawn_agent", "reports", "agent"),
        ("stock", "remembers", "recall"),
        ("write_file", "runs", "write"),
        ("stock", "runs", "other"),
    ],
)
def test_a_declared_kind_overrules_a_name_that_says_otherwise(tool: str, kind: ToolKind, found: ToolClass) -> None:
    assert declared_class(Tool(tool, kind=kind)) == found


def test_only_classes_that_names_do_not_tell_are_recorded() -> None:
    assert declared_classes((Tool("stock", kind="edits"), Tool("read", kind="reads"))) == {"stock": "edit"}


def test_a_declaration_tells_the_class_by_the_arguments_where_the_name_does_not() -> None:
    schema = '{"type":"object","properties":{"path":{"type":"string"},"old_str":{"type":"string"}}}'
    assert declared_class(Tool("swap", schema=Raw(schema.encode()))) == "edit"
    assert declared_class(Tool("doit", schema=Raw(b'{"properties":{"cmd":{}}}'))) == "command"
    assert declared_class(Tool("odd", schema=Raw(b'{"properties":[]}'))) == "other"


@every_case(
    ("call", "action"),
    [
        (
            ToolCall("c", "Read", '{"file_path":"/r/a.py","offset":10,"limit":20}'),
            Action("read", (FileAccess("/r/a.py", "read", 10, 29),)),
        ),
        (ToolCall("c", "read", '{"filePath":"/r/a.py"}'), Action("read", (FileAccess("/r/a.py", "read"),))),
        (ToolCall("c", "view", '{"path":"a.py","view_range":[5,-1]}'), Action("read", (FileAccess("a.py", "read", 5),))),
        (
            ToolCall("c", "str_replace_editor", '{"command":"view","path":"a.py"}'),
            Action("read", (FileAccess("a.py", "read"),)),
        ),
        (
            ToolCall("c", "str_replace_editor", '{"command":"create","path":"a.py","file_text":"x"}'),
            Action("write", (FileAccess("a.py", "write"),)),
        ),
        (ToolCall("c", "Edit", '{"file_path":"a.py","old_string":"a","new_string":"b"}'), Action("edit", (FileAccess("a.py", "edit"),))),
        (
            ToolCall(
                "c", "apply_patch", "*** Begin Patch\n*** Update File: a.py\n@@\n--- x\n+y\n*** Add File: d/b.py\n+1\n*** End Patch", "free"
            ),
            Action("edit", (FileAccess("a.py", "edit"), FileAccess("d/b.py", "write"))),
        ),
        (
            ToolCall("c", "apply_patch", '{"input":"*** Begin Patch\\n*** Delete File: a.py\\n*** End Patch"}'),
            Action("edit", (FileAccess("a.py", "edit"),)),
        ),
        (
            ToolCall("c", "patch", '{"diff":"--- a/x.c\\n+++ b/x.c\\n@@ -1 +1 @@\\n-a\\n+b\\n"}'),
            Action("edit", (FileAccess("x.c", "edit"),)),
        ),
        (ToolCall("c", "Bash", '{"command":"npm test"}'), Action("command", (), "npm test")),
        (ToolCall("c", "shell", '{"command":["bash","-lc","ls -la"]}'), Action("command", (), "ls -la")),
        (ToolCall("c", "local_shell", '{"command":["git","status"]}', "shell"), Action("command", (), "git status")),
        (
            ToolCall("c", "exec_command", '{"cmd":"sed -n \'1,240p\' src/a.ts && cat b.md"}'),
            Action("command", (FileAccess("src/a.ts", "read", 1, 240), FileAccess("b.md", "read")), "sed -n '1,240p' src/a.ts && cat b.md"),
        ),
        (ToolCall("c", "Grep", '{"pattern":"x","path":"src"}'), Action("search", (FileAccess("src", "search"),))),
        (ToolCall("c", "TodoWrite", '{"todos":[]}'), Action("plan")),
        (ToolCall("c", "Write", '{"file_path":"a.py","content":"cut off'), Action("write", (FileAccess("a.py", "write"),))),
        (ToolCall("c", "Read", "[1"), Action("read")),
    ],
)
def test_a_call_tells_its_paths_and_its_command(call: ToolCall, action: Action) -> None:
    assert action_of(call) == action


@every_case(
    ("line", "paths"),
    [
        ("cat > notes.md <<'EOF'\nsee cat other.md\nEOF", (FileAccess("notes.md", "write"),)),
        ("echo x >> a.log 2>/dev/null", (FileAccess("a.log", "edit"),)),
        ("sed -i 's/a/b/' src/x.py", (FileAccess("src/x.py", "edit"),)),
        ("head -n 40 a.txt | tail -5", (FileAccess("a.txt", "read", 1, 40),)),
        ("FOO=1 cat 'with space.txt' | grep x", ()),
        ("apply_patch <<'P'\n*** Begin Patch\n*** Update File: q.py\n*** End Patch\nP", (FileAccess("q.py", "edit"),)),
        ("git log --oneline", ()),
        ("head -c 300 /dev/zero > /dev/null", ()),
        ("grep -rn foo src/*.py", ()),
    ],
)
def test_a_command_line_tells_the_files_it_reads_and_writes(line: str, paths: tuple[FileAccess, ...]) -> None:
    assert action_of(ToolCall("c", "bash", msgspec.json.encode({"command": line}).decode())).paths == paths


@every_case(
    ("call", "action"),
    [
        (ToolCall("c", "sql", "select * from orders", "free"), Action("other")),
        (ToolCall("c", "code", "--- a/x.py\n+++ b/x.py\nprint(1)", "free"), Action("other")),
        (ToolCall("c", "notes", "About the *** Begin Patch envelope", "free"), Action("other")),
        (ToolCall("c", "review", '{"diff":"--- a/x.py\\n+++ b/x.py\\n@@ -1 +1 @@\\n-a\\n+b\\n"}'), Action("other")),
        (ToolCall("c", "ship", PATCH, "free"), Action("edit", (FileAccess("a.py", "edit"), FileAccess("d/b.py", "write")))),
        (
            ToolCall("c", "ship", msgspec.json.encode({"input": PATCH}).decode()),
            Action("edit", (FileAccess("a.py", "edit"), FileAccess("d/b.py", "write"))),
        ),
        (ToolCall("c", "apply_patch", "*** Update File: a.py\n+1", "free"), Action("edit", (FileAccess("a.py", "edit"),))),
        (ToolCall("c", "apply_patch", "no patch at all", "free"), Action("edit")),
        (ToolCall("c", "shell", "rm a.py", "free"), Action("command", (FileAccess("a.py", "remove"),), "rm a.py")),
    ],
)
def test_a_free_form_call_is_an_edit_only_by_its_tool_or_by_a_whole_patch(call: ToolCall, action: Action) -> None:
    assert action_of(call) == action


def test_a_declared_patch_tool_is_an_edit_in_any_form() -> None:
    call = ToolCall("c", "ship", "*** Update File: a.py\n+1", "free", kind="edit")
    assert action_of(call) == Action("edit", (FileAccess("a.py", "edit"),))


def test_the_words_of_a_list_are_each_one_word() -> None:
    patch = ToolCall("c", "shell", msgspec.json.encode({"command": ["apply_patch", PATCH]}).decode())
    assert action_of(patch).paths == (FileAccess("a.py", "edit"), FileAccess("d/b.py", "write"))
    search = ToolCall("c", "shell", '{"command":["grep","-rn","a; rm b.py","src"]}')
    assert action_of(search) == Action("command", (), "grep -rn a; rm b.py src")
    assert shell_line(search) == "grep -rn 'a; rm b.py' src"


def test_code_of_another_language_is_no_shell_line() -> None:
    cell = ToolCall("c", "execute_ipython_cell", '{"code":"rm = 1\\nrm > 0"}')
    assert (action_of(cell), shell_line(cell)) == (Action("command", (), "rm = 1\nrm > 0"), "")


def returned(text: str, *, error: bool = False, exit_code: int | None = None, paths: tuple[str, ...] = ()) -> ToolReturned:
    return ToolReturned(ToolResult("c", (Text(text),), error=error), exit=exit_code, paths=paths)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Chunk ID: 1\nProcess exited with code 2\nOutput:\n", 2),
        ("Exit code 127\nnot found", 127),
        ("ok\n<shellId: 0 completed with exit code 0>", 0),
        ("x" * 2_000 + "\n[Command finished with exit code 3]", 3),
        ("<returncode>1</returncode>\n<output></output>", 1),
        ('{"output":"","metadata":{"exit_code":5}}', 5),
        ("all good", None),
    ],
)
def test_an_exit_code_is_found_where_programs_write_it(text: str, code: int | None) -> None:
    assert exit_of(returned(text)) == code


def test_a_recorded_exit_code_comes_before_the_text() -> None:
    assert exit_of(returned("Exit code 1", exit_code=0)) == 0


def test_a_call_that_failed_accessed_nothing() -> None:
    call = ToolCall("c", "Edit", '{"file_path":"a.py"}')
    assert action_with(call, returned("no such text", error=True)) == Action("edit")


def test_paths_of_the_result_are_added_to_those_of_the_call() -> None:
    call = ToolCall("c", "Edit", '{"file_path":"a.py"}')
    assert action_with(call, returned("done", paths=("a.py", "b.py"))).paths == (FileAccess("a.py", "edit"), FileAccess("b.py", "edit"))


def test_an_edit_of_the_open_file_is_known_from_its_result() -> None:
    call = ToolCall("c", "bash", '{"command":"edit 1:3\\nx\\nend_of_edit"}')
    assert action_with(call, returned("[File: /r/a.py (9 lines total)]\n1:x")).paths == (FileAccess("/r/a.py", "edit"),)


def test_a_later_read_covers_an_earlier_one_only_if_it_shows_as_much() -> None:
    whole, part = FileAccess("a", "read"), FileAccess("a", "read", 10, 20)
    assert [whole.covers(part), part.covers(whole), part.covers(part)] == [True, False, True]
    assert not FileAccess("a", "read", 12, 20).covers(part)
    assert FileAccess("a", "read", 5).covers(part)
    assert not whole.covers(FileAccess("b", "read"))


@given(
    st.sampled_from(TOOLS),
    st.text(),
    st.sampled_from(FORMS),
)
def test_garbage_is_never_an_error(tool: str, args: str, form: Form) -> None:
    call = ToolCall("c", tool, args, form)
    assert action_of(call) == action_of(call)
    assert action_with(call, returned(args)).kind == action_of(call).kind
    exit_of(returned(args))


@given(st.recursive(st.none() | st.integers() | st.text(max_size=8), lambda inner: st.lists(inner, max_size=3), max_leaves=6))
def test_arguments_of_any_type_are_no_error(value: object) -> None:
    for name in ("file_path", "paths", "command", "view_range", "offset", "files"):
        for tool in ("Read", "Bash", "str_replace_editor"):
            action_of(ToolCall("c", tool, msgspec.json.encode({name: value}).decode()))
