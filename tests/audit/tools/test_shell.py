"""The simple commands of a shell line."""

import pytest
from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.audit.shell_lines import LONGEST, Redirect, ShellCommand, parse_line

PATCH = "*** Begin Patch\n*** Update File: q.py\n*** End Patch\n"
WHOLE_LINES = [
    "cd src",
    "A=1 B=$(cat f) pytest -q",
    "a | grep x | head -30",
    "echo B && cd s",
    "x 2>&1 | tail -5",
    "make > log 5",
    "cat > notes.md <<'EOF'\nrm b\nEOF",
    "if [ -f a ]; then rm a; fi",
    "for f in 1 2; do rm $f.txt; done >> log",
    "cat a/$x.$y.c",
    "(cd y; make test) &",
    "! sleep 5",
]


@every_case(
    ("line", "commands"),
    [
        ("", []),
        ("git status --short", [ShellCommand(("git", "status", "--short"))]),
        ("rm a\\ b 'c d'\"e\" f$x \"g\\\"h\" $'i\\nj' ''", [ShellCommand(("rm", "a b", "c de", "f$x", 'g"h', "i\nj", ""))]),
        ("A=1 pytest", [ShellCommand(("pytest",))]),
        ("a | b && c; d", [ShellCommand(("a",)), ShellCommand(("b",)), ShellCommand(("c",)), ShellCommand(("d",))]),
        ("a \\\n  b", [ShellCommand(("a", "b"))]),
        ("cat a # rm b", [ShellCommand(("cat", "a"))]),
        ("cat > a.py more", [ShellCommand(("cat", "more"), (Redirect(">", "a.py"),))]),
        ("a 2>&1 >> 'b c'", [ShellCommand(("a",), (Redirect("2>&", "1"), Redirect(">>", "b c")))]),
        ("> f", [ShellCommand((), (Redirect(">", "f"),))]),
        ("(a; b) > f", [ShellCommand((), (Redirect(">", "f"),)), ShellCommand(("a",)), ShellCommand(("b",))]),
        ("a && b > f", [ShellCommand(("a",)), ShellCommand(("b",), (Redirect(">", "f"),))]),
        ("bash <<< 'rm x'", [ShellCommand(("bash",), (), "rm x")]),
        (f"cd x && apply_patch <<'P'\n{PATCH}P", [ShellCommand(("cd", "x")), ShellCommand(("apply_patch",), (), PATCH)]),
        ("cat <<EOF > x && rm y\nz\nEOF", [ShellCommand(("cat",), (Redirect(">", "x"),), "z\n"), ShellCommand(("rm", "y"))]),
        ("cat > q <<'EOF'\nnever ends", [ShellCommand(("cat",), (Redirect(">", "q"),))]),
        (
            'echo "$(cat z)" `cat x`',
            [ShellCommand(("echo", "$(cat z)", "`cat x`")), ShellCommand(("cat", "z")), ShellCommand(("cat", "x"))],
        ),
        ("diff <(cat a) b", [ShellCommand(("diff", "<(cat a)", "b")), ShellCommand(("cat", "a"))]),
    ],
)
def test_a_line_is_its_simple_commands(line: str, commands: list[ShellCommand]) -> None:
    assert parse_line(line) == commands


@pytest.mark.parametrize("letter", ["é", "文", "😀", "\U0010d136", "\xa0", "\u2028"])
def test_letters_of_every_script_stay_in_their_words(letter: str) -> None:
    line = f"cat {letter}/a{letter}.md > 'b {letter}' | grep {{{letter}"
    assert parse_line(line) == [
        ShellCommand(("cat", f"{letter}/a{letter}.md"), (Redirect(">", f"b {letter}"),)),
        ShellCommand(("grep", f"{{{letter}")),
    ]


def test_a_word_of_two_expansions_is_one_word() -> None:
    assert parse_line("cat a/$x.$y.c d") == [ShellCommand(("cat", "a/$x.$y.c", "d"))]


def test_the_end_of_a_line_ends_a_pipeline_of_three() -> None:
    assert [command.words for command in parse_line("a | grep x | head -30\necho B && cd s")] == [
        ("a",),
        ("grep", "x"),
        ("head", "-30"),
        ("echo", "B"),
        ("cd", "s"),
    ]


@given(st.lists(st.sampled_from(WHOLE_LINES), max_size=5))
def test_lines_below_each_other_are_the_commands_of_each(lines: list[str]) -> None:
    assert parse_line("\n".join(lines)) == [command for line in lines for command in parse_line(line)]


def test_a_document_of_any_length_is_passed_on_whole_and_what_follows_is_still_read() -> None:
    body = "rm 'x\n" * LONGEST
    assert parse_line(f"cat > a.py <<'EOF'\n{body}EOF\nrm b.py") == [
        ShellCommand(("cat",), (Redirect(">", "a.py"),), body),
        ShellCommand(("rm", "b.py")),
    ]
    assert parse_line(f"cat > a.py <<'EOF'\n{body.rstrip()}") == [ShellCommand(("cat",), (Redirect(">", "a.py"),), body)]


@given(st.one_of(st.text(), st.text(alphabet="ab $(){}[]<>|&;'\"`\\\n#!*?=0文", max_size=80)))
def test_any_line_can_be_parsed(line: str) -> None:
    assert parse_line(line) == parse_line(line)
