"""What the log proves, event by event."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from palimpsest.audit.evidence import MOST_COMMANDS, MOST_MESSAGES, MOST_NAMES, EvidenceProjection
from palimpsest.core.events import Body, Event, Interrupted, ModelReplied, TaskChanged, ToolReturned, UserSaid
from palimpsest.core.items import Text, Thinking, ToolCall, ToolResult
from palimpsest.core.plans import ClosingMessage, CommandRun, Evidence, PendingCall, UserMessage
from palimpsest.core.tokens import estimate


def gather(*bodies: Body) -> Evidence:
    projection = EvidenceProjection()
    for seq, body in enumerate(bodies):
        projection.take(Event(seq, seq - 1, 1_000 * seq, "", body))
    return projection.value()


def call(call_id: str, tool: str, **args: object) -> ModelReplied:
    return ModelReplied((ToolCall(call_id, tool, msgspec.json.encode(args).decode()),))


def back(call_id: str, text: str = "", *, exit_code: int | None = None, error: bool = False, tool: str = "") -> ToolReturned:
    return ToolReturned(ToolResult(call_id, (Text(text),), error=error), tool=tool, exit=exit_code)


def test_edited_and_read_paths_are_listed_once_with_the_newest_last() -> None:
    evidence = gather(
        call("1", "Read", file_path="a.py"),
        back("1", "x"),
        call("2", "Read", file_path="b.py"),
        back("2", "x"),
        call("3", "Edit", file_path="a.py", old_string="x", new_string="y"),
        back("3", "ok"),
        call("4", "Write", file_path="c.py", content=""),
        back("4", "ok"),
        call("5", "Edit", file_path="a.py", old_string="y", new_string="z"),
        back("5", "ok"),
        call("6", "Read", file_path="a.py"),
        back("6", "z"),
    )
    assert evidence.edited == ("c.py", "a.py")
    assert evidence.read == ("b.py",)


def test_an_edit_that_failed_edited_nothing_and_a_command_that_read_a_file_read_it() -> None:
    evidence = gather(
        call("1", "Edit", file_path="a.py", old_string="x", new_string="y"),
        back("1", "no match", error=True),
        call("2", "exec_command", cmd="sed -n '1,9p' src/b.ts"),
        back("2", "Process exited with code 0\nOutput:\n"),
    )
    assert evidence.edited == ()
    assert evidence.read == ("src/b.ts",)


def test_search_and_replace_blocks_in_a_reply_edit_their_files() -> None:
    block = "<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n"
    reply = f"One line:\n\ngreet.py\n```python\n{block}```\n`src/x.ts`:\n{block}"
    assert gather(ModelReplied((Text(reply),))).edited == ("greet.py", "src/x.ts")


def test_commands_have_exit_codes_and_failed_ones_stay_open_until_the_same_command_succeeds() -> None:
    evidence = gather(
        call("1", "Bash", command="make build"),
        back("1", "Exit code 2\ncc: error: x.c missing", error=True),
        call("2", "Bash", command="npm test"),
        back("2", "Tests: 1 failed, 4 passed", exit_code=1),
        call("3", "Bash", command="cd /r && make build 2>&1 | tail -5"),
        back("3", "done", exit_code=0),
        call("4", "Bash", command="grep -rn nothing src"),
        back("4", "", exit_code=1),
    )
    assert [(ran.command, ran.exit, ran.seq) for ran in evidence.commands] == [
        ("make build", 2, 1),
        ("npm test", 1, 3),
        ("cd /r && make build 2>&1 | tail -5", 0, 5),
        ("grep -rn nothing src", 1, 7),
    ]
    assert evidence.errors == (CommandRun("npm test", 1, 3, "Tests: 1 failed, 4 passed"),)
    assert evidence.tests == CommandRun("npm test", 1, 3, "Tests: 1 failed, 4 passed")


def test_a_command_that_runs_on_gets_its_exit_code_from_the_call_that_waits_for_it() -> None:
    evidence = gather(
        call("1", "exec_command", cmd="bun run build"),
        back("1", "Chunk ID: 1\nProcess running with session ID 77\nOutput:\n"),
        call("2", "write_stdin", session_id=77, chars=""),
        back("2", "Chunk ID: 2\nProcess exited with code 3\nOutput:\nfatal: no space"),
    )
    assert evidence.commands == (CommandRun("bun run build", 3, 3, "fatal: no space"),)
    assert evidence.pending == ()


def test_a_command_that_mentions_a_test_runner_is_not_the_last_test() -> None:
    evidence = gather(
        call("1", "Bash", command="uv run pytest -q"),
        back("1", "12 passed in 0.31s", exit_code=0),
        call("2", "Bash", command="pip install pytest-xdist"),
        back("2", "Successfully installed pytest-xdist-3.8", exit_code=0),
        call("3", "Bash", command="cat jest.config.js"),
        back("3", "Tests: 3", exit_code=0),
    )
    assert evidence.tests == CommandRun("uv run pytest -q", 0, 1, "12 passed in 0.31s")


def test_tests_are_known_by_the_whole_command_also_when_it_is_long_or_runs_on() -> None:
    long = f"export PATHS={'x' * 300}; pytest -q"
    evidence = gather(
        call("1", "exec_command", cmd=long),
        back("1", "Process running with session ID 77\n"),
        call("2", "write_stdin", session_id=77, chars=""),
        back("2", "Process exited with code 1\nOutput:\n1 failed, 2 passed"),
    )
    assert evidence.tests == CommandRun(long[:200], 1, 3, "1 failed, 2 passed")


def test_files_that_a_shell_command_moves_copies_removes_or_rewrites_are_edited() -> None:
    evidence = gather(
        call("1", "Read", file_path="old.py"),
        back("1", "x"),
        call("2", "Read", file_path="gone.py"),
        back("2", "x"),
        call("3", "Bash", command="mv old.py src/ && cp a.py b.py && rm gone.py && perl -pi -e s/a/b/ c.py"),
        back("3", "", exit_code=0),
        call("4", "Bash", command="git checkout -- d.py"),
        back("4", "error: pathspec", exit_code=1),
    )
    assert (evidence.edited, evidence.read) == (("old.py", "src/old.py", "b.py", "gone.py", "c.py"), ())


def test_an_unknown_free_form_tool_edits_nothing() -> None:
    free = ModelReplied((ToolCall("1", "sql", "--- orders\n+++ prices\n", "free"),))
    evidence = gather(free, ToolReturned(ToolResult("1", (Text("ok"),)), tool="sql", paths=("dump.sql",)))
    assert evidence.edited == ()


def test_user_messages_are_kept_by_opening_words() -> None:
    evidence = gather(UserSaid((Text("The build is red. Never push to main!"),)))
    assert evidence.user_messages == (UserMessage("0.0", 0, "The build is red. Never push to main!", evidence.user_messages[0].tokens),)


def test_the_last_text_of_a_turn_is_kept_by_opening_words_with_the_message_before_it() -> None:
    evidence = gather(
        ModelReplied((Text("Hello."),)),
        UserSaid((Text("Fix it."),)),
        ModelReplied((Thinking("hm"), Text("I look."), ToolCall("1", "read", "{}"))),
        UserSaid((Text("Be quick."),), steering=True),
        ModelReplied((Text("It is\n  fixed: " + "word " * 40), Text(" "))),
        ModelReplied((Text("A title"),), purpose="title"),
        UserSaid((Text("And the docs?"),)),
        ModelReplied((Text("They are next."),)),
        Interrupted(None, (ToolCall("2", "read", "{}"), Thinking("hm"), Text("They are"))),
        UserSaid((Text("Stop."),)),
    )
    assert [message.closing for message in evidence.user_messages] == [
        None,
        ClosingMessage("4.0", 4_000, "It is fixed: " + "word " * 13 + "wo"),
        ClosingMessage("8.1", 8_000, "They are"),
        None,
    ]


def test_open_tasks_come_from_lists_of_any_program() -> None:
    todos = [{"content": "one", "status": "completed"}, {"content": "two", "status": "in_progress"}, {"content": "three"}]
    assert gather(call("1", "TodoWrite", todos=todos), back("1", "ok")).tasks == ("two", "three")
    plan = [{"step": "look", "status": "completed"}, {"step": "build", "status": "pending"}]
    assert gather(call("1", "update_plan", plan=plan), back("1", "Plan updated")).tasks == ("build",)
    assert gather(TaskChanged("todo", "list", Raw(b'[{"content":"a","status":"pending"}]'))).tasks == ("a",)
    assert gather(call("1", "update_todo_list", todos="- [x] done\n- [ ] open"), back("1")).tasks == ("open",)


def test_a_list_that_was_refused_changes_nothing() -> None:
    assert gather(call("1", "TodoWrite", todos=[{"content": "one"}]), back("1", "denied", error=True)).tasks == ()


def test_tasks_that_come_and_go_one_by_one_are_followed_by_their_numbers() -> None:
    evidence = gather(
        call("1", "TaskCreate", subject="Draw it"),
        back("1", "Task #1 created successfully: Draw it"),
        call("2", "TaskCreate", subject="Ship it"),
        back("2", "Task #2 created successfully: Ship it"),
        call("3", "TaskUpdate", taskId="1", status="completed"),
        back("3", "Updated task #1 status"),
    )
    assert evidence.tasks == ("#2 Ship it",)


def test_a_new_list_replaces_the_old_list_and_leaves_the_tasks_of_the_graph() -> None:
    graph = (call("1", "task_create", subject="Draw it"), back("1", 'Task #1 created\n{"id":1}'))
    evidence = gather(
        *graph,
        TaskChanged("task 1", "created", Raw(b'{"id":1,"subject":"Draw it","status":"pending"}')),
        TaskChanged("todos", "replaced", Raw(b'[{"id":"a","text":"#1 of the tracker","status":"pending"},{"id":"b","text":"read"}]')),
    )
    assert (evidence.tasks, evidence.numbered) == (("#1 of the tracker", "read", "#1 Draw it"), ("#1",))
    later = gather(
        *graph,
        TaskChanged("todos", "replaced", Raw(b'[{"id":"a","text":"#1 of the tracker","status":"pending"}]')),
        TaskChanged("todos", "replaced", Raw(b'[{"id":"b","text":"test","status":"pending"}]')),
    )
    assert later.tasks == ("test", "#1 Draw it")
    done = gather(
        *graph,
        TaskChanged("todos", "replaced", Raw(b'[{"id":"b","text":"test","status":"pending"}]')),
        call("2", "task_update", id=1, status="completed"),
        back("2", "Task #1 updated"),
    )
    assert (done.tasks, done.numbered) == (("test",), ())


def test_lists_and_tasks_of_a_graph_stay_apart_after_the_evidence_was_restored() -> None:
    projection = EvidenceProjection()
    projection.start_from(Evidence(tasks=("#1 of the tracker", "#1 Draw it"), numbered=("#1",)))
    projection.take(Event(9, 8, 0, "", TaskChanged("todos", "replaced", Raw(b"[]"))))
    assert projection.value() == Evidence(tasks=("#1 Draw it",), numbered=("#1",))


def test_names_are_those_that_the_model_used_itself_most_recent_last() -> None:
    evidence = gather(
        UserSaid((Text("look at userName please"),)),
        ModelReplied((Text("I will change getConfig and parse_args."),)),
        ModelReplied((Text("getConfig is done."),)),
    )
    assert evidence.names == ("parse_args", "getConfig")


def test_what_is_kept_is_bounded_by_what_can_be_shown() -> None:
    bodies: list[Body] = []
    for number in range(MOST_COMMANDS + 50):
        bodies += [call(str(number), "Bash", command=f"echo name_{number:05}"), back(str(number), "", exit_code=0)]
    evidence = gather(*bodies)
    assert len(evidence.commands) == MOST_COMMANDS
    assert evidence.commands[-1].command == f"echo name_{MOST_COMMANDS + 49:05}"
    assert len(evidence.names) == MOST_NAMES


def test_the_newest_user_messages_are_kept_and_those_before_them_are_counted() -> None:
    evidence = gather(*(UserSaid((Text(f"Do part {number}."),)) for number in range(MOST_MESSAGES + 3)))
    assert (len(evidence.user_messages), evidence.user_messages[0].id) == (MOST_MESSAGES, "3.0")
    assert (evidence.earlier, evidence.earlier_tokens) == (3, sum(estimate(f"Do part {number}.") for number in range(3)))


def test_a_snapshot_keeps_the_count_of_earlier_messages() -> None:
    projection = EvidenceProjection()
    earlier = Evidence(user_messages=(UserMessage("7.0", 0, "Go on.", 2),), earlier=5, earlier_tokens=40)
    projection.start_from(earlier)
    restored = EvidenceProjection()
    restored.restore(projection.snapshot())
    assert restored.value() == earlier


def test_a_call_without_an_answer_waits_and_an_answer_without_a_call_is_taken_as_it_is() -> None:
    evidence = gather(call("1", "Edit", file_path="a.py"), ToolReturned(ToolResult("9"), tool="Write", paths=("b.py",)))
    assert evidence.pending == (PendingCall("1", "edit", edited=("a.py",)),)
    assert evidence.edited == ("b.py",)


BODIES = st.one_of(
    st.builds(lambda text: UserSaid((Text(text),)), st.text(max_size=40)),
    st.builds(
        lambda number, tool, args: ModelReplied((ToolCall(str(number), tool, args),)),
        st.integers(0, 3),
        st.sampled_from(["Read", "Edit", "Bash", "TodoWrite", "TaskCreate", "TaskUpdate", "write_stdin"]),
        st.one_of(
            st.sampled_from(
                [
                    '{"file_path":"a/b.py"}',
                    '{"command":"pytest -q"}',
                    '{"todos":[{"content":"x"}]}',
                    '{"subject":"s"}',
                    '{"taskId":"1","status":"done"}',
                    '{"session_id":5}',
                ]
            ),
            st.text(max_size=20),
        ),
    ),
    st.builds(
        lambda number, text, error, code: ToolReturned(ToolResult(str(number), (Text(text),), error=error), tool="Bash", exit=code),
        st.integers(0, 3),
        st.one_of(st.text(max_size=20), st.sampled_from(["running with session ID 5", "Task #1 created", "Exit code 2"])),
        st.booleans(),
        st.sampled_from([None, 0, 1]),
    ),
    st.builds(lambda state: TaskChanged("t", "w", Raw(state)), st.sampled_from([b"null", b"[]", b'[{"content":"q"}]', b"{]"])),
)


@given(st.lists(BODIES, max_size=12), st.integers(0, 12))
def test_going_on_from_a_snapshot_gives_what_one_projection_gives(bodies: list[Body], cut: int) -> None:
    events = [Event(seq, seq - 1, seq, "", body) for seq, body in enumerate(bodies)]
    whole, part = EvidenceProjection(), EvidenceProjection()
    for event in events[:cut]:
        part.take(event)
    rest = EvidenceProjection()
    rest.restore(part.snapshot())
    for event in events[cut:]:
        rest.take(event)
    for event in events:
        whole.take(event)
        whole.value()
    assert rest.value() == whole.value()
