"""Strict reading of shell lines: commands with words, variables and redirections, and what is not understood."""

import json
import subprocess
from pathlib import Path

from every_case import every_case
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palimpsest.agent.decision import Allow
from palimpsest.agent.shell import Shell
from palimpsest.agent.workspace import Workspace
from palimpsest.coding.permissions import Permissions
from palimpsest.coding.shell_lines import CommandLine, LineCommand, Redirection, Word, read_line, started_commands
from palimpsest.core.items import ToolCall


def command(*words: str | Word, assignments: tuple[Word, ...] = (), redirections: tuple[Redirection, ...] = ()) -> LineCommand:
    return LineCommand(tuple(Word(word) if isinstance(word, str) else word for word in words), assignments, redirections)


UNKNOWN = Word("\ufffd", static=False)


@every_case(
    ("line", "commands"),
    [
        ("ls -la", (command("ls", "-la"),)),
        ("a | b && c; d & e", tuple(command(name) for name in "abcde")),
        ("echo 'a b' \"c d\" e\\ f g''h", (command("echo", "a b", "c d", "e f", "gh"),)),
        ("ls *.py '*.py'", (command("ls", Word("*.py", glob=True), "*.py"),)),
        ('echo "$x" ~/a "~/a" HEAD~1', (command("echo", UNKNOWN, "~/a", "./~/a", "HEAD~1"),)),
        ("echo $(a b) `c`", (command("echo", UNKNOWN, UNKNOWN), command("c"), command("a", "b"))),
        ("A=1 B='2 3' c", (command("c", assignments=(Word("A=1"), Word("B=2 3"))),)),
        ("A=$x", (command(assignments=(Word("A=\ufffd", static=False),)),)),
        (
            "a <b >>c 2>&1",
            (command("a", redirections=(Redirection("<", Word("b")), Redirection(">>", Word("c")), Redirection("2>&", Word("1")))),),
        ),
        ("(a; b) > c", (command(redirections=(Redirection(">", Word("c")),)), command("a"), command("b"))),
        ("a \\\n  b", (command("a", "b"),)),
        ("a # b\nc", (command("a"), command("c"))),
        ("ls größe", (command("ls", "größe"),)),
        ("git log @{u}..HEAD", (command("git", "log", "@{u}..HEAD"),)),
        ("ls {a,b} {}", (command("ls", Word("{a,b}\ufffd", static=False), "{}"),)),
    ],
)
def test_a_line_is_read_into_its_commands(line: str, commands: tuple[LineCommand, ...]) -> None:
    assert read_line(line) == CommandLine(commands)


@every_case(
    ("line", "reason"),
    [
        ("ls 'a", "the command has a syntax that is not understood"),
        ("ls \\", "the command has a syntax that is not understood"),
        ("ls\x00", "the command has control characters"),
        ("ls \r", "the command has control characters"),
        ("ls" * 5_000, "the command has more than 8,000 characters"),
        ("l\\\ns", "an escaped line break may join two words"),
        ("ls !\\\n# a|b", "an escaped line break may join two words"),
        ("cat <<E\na\nE", "it has a here-document"),
        ("f() { ls; }", "it uses function definition"),
        ("for a in b; do ls; done", "it uses for statement"),
        ("while a; do b; done", "it uses while statement"),
        ("case a in a) b;; esac", "it uses case statement"),
        ("[[ a -eq b ]]", "it uses test command"),
        ("echo $((1))", "it uses arithmetic expansion"),
        ("echo ${a:-b}", "it uses expansion"),
        ("export A=1", "it uses declaration command"),
        ("a[0]=1", "it assigns to a part of a variable"),
        ("echo $'\\x41'", "it uses ansi c string"),
        ("ls;;", "it joins commands in a way that is not understood"),
    ],
)
def test_what_is_not_understood_is_said(line: str, reason: str) -> None:
    assert reason in read_line(line).unclear


@every_case(
    ("line", "started"),
    [
        ("timeout 5 nice -n 3 ls", [("timeout", "5", "nice", "-n", "3", "ls"), ("nice", "-n", "3", "ls"), ("ls",)]),
        ("env A=1 ls", [("env", "A=1", "ls"), ("ls",)]),
        ("bash -c 'a; b c'", [("bash", "-c", "a; b c"), (), ("a",), ("b", "c")]),
        ("eval 'a b'", [("eval", "a b"), (), ("a", "b")]),
        ("busybox a b", [("busybox", "a", "b"), ("a", "b")]),
        ("sudo -u x a b", [("sudo", "-u", "x", "a", "b"), ("a", "b")]),
        ("find . -exec a {} ';'", [("find", ".", "-exec", "a", "{}", ";"), ("a", "{}")]),
        ("bash -lc 'a b'", [("bash", "-lc", "a b"), ("a", "b")]),
        ("uv run a", [("uv", "run", "a"), ("a",)]),
    ],
)
def test_wrappers_and_scripts_lead_to_the_commands_that_they_start(line: str, started: list[tuple[str, ...]]) -> None:
    found = [each.texts for each in started_commands(line).commands]
    assert list(dict.fromkeys(found)) == started


def test_a_variable_of_a_wrapper_belongs_to_the_command_that_it_starts() -> None:
    assert started_commands("A=1 env B=2 timeout 5 ls").commands[-1] == command("ls", assignments=(Word("A=1"), Word("B=2")))


def test_a_program_or_script_that_only_the_shell_knows_is_unclear() -> None:
    assert started_commands("$X a").unclear == ("the program is not known before it runs",)
    assert started_commands('bash -c "$X"').unclear == ("a script in an argument is not understood",)
    deep = "ls"
    for _ in range(5):
        deep = f"eval {json.dumps(deep)}"
    assert started_commands(deep).unclear == ("a script in an argument is not understood",)


PIECES = (
    *("ls", "cat", "echo", "sort", "cd", "eval", "bash -c", "env", "time", "command", "head", "a", "d", "link/secret", "../out/secret"),
    *("touch PWNED", "; touch PWNED", "$(touch PWNED)", "`touch PWNED`", "\ntouch PWNED\n", "-o", "--", "-n"),
    *(
        ";",
        "&&",
        "||",
        "|",
        "|&",
        "&",
        "\n",
        " ",
        "\t",
        "'",
        '"',
        "\\",
        "\\\n",
        "$(",
        "`",
        ")",
        "(",
        "{ ",
        "; }",
        "<",
        "<(",
        ">",
        ">&",
        "2>&1",
    ),
    *(
        "<<E",
        "\nE\n",
        "<<<",
        "<<-E",
        "<<'E'",
        "#",
        "$",
        "${",
        "$'",
        '$"',
        "x=",
        "!",
        "if ",
        "; then ",
        "; fi",
        "[[ ",
        " ]]",
        "((",
        "))",
        "*",
        "?",
    ),
    *(
        "[",
        "]",
        "~",
        "=",
        ",",
        "..",
        "1",
        "é",
        "\u00a0",
        "\r",
        "function ",
        "case ",
        " in ",
        ";;",
        "for x in ",
        "; do ",
        "; done",
        "> /dev/null",
    ),
)


@given(pieces=st.lists(st.sampled_from(PIECES), min_size=1, max_size=12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
def test_a_line_that_runs_without_a_question_changes_nothing_and_shows_nothing_from_outside(tmp_path: Path, pieces: list[str]) -> None:
    project, out = tmp_path / "project", tmp_path / "out"
    if not project.exists():
        (project / "d").mkdir(parents=True)
        out.mkdir()
        (project / "a").write_text("1\n")
        (out / "secret").write_text("hidden content\n")
        (project / "link").symlink_to(out)
    line = " ".join(pieces).replace("PWNED", str(out / "pwned"))
    tool = Shell(project).tools()[0]
    decision = Permissions("ask", Workspace(project)).decide(tool, ToolCall("c1", "bash", json.dumps({"command": line})), sandboxed=False)
    if isinstance(decision, Allow):
        before = sorted(tmp_path.rglob("*"))
        script = ["bash", "--noprofile", "--norc", "-c", line]
        done = subprocess.run(script, cwd=project, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False)
        assert (sorted(tmp_path.rglob("*")), b"hidden" in done.stdout) == (before, False)
