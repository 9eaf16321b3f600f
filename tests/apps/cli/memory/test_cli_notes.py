"""`pal memory list|show|add|edit|forget|undo|promote`, as a new user would use and misuse them."""

import json
import os
import resource
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pal_runs import Pal

from palimpsest.memory.changes import AcceptedChange
from palimpsest.memory.note import Note
from palimpsest.memory.notebook import Memories, memories_of
from palimpsest.memory.store import MOST_FILES


class NotePal:
    """`pal memory` in a project folder."""

    def __init__(self, pal: Pal, project: Path) -> None:
        self.pal = pal
        self.project = project

    def __call__(self, *words: str, code: int = 0, **env: str) -> str:
        """Run a command and return its standard output; on an error its standard error."""
        result = self.pal("memory", *words, "--cwd", str(self.project), **env)
        assert result.exit_code == code, result.output
        return result.stdout if code == 0 else result.stderr

    def json(self, *words: str, code: int = 0) -> Any:
        return self.pal.json("memory", *words, "--cwd", str(self.project), code=code)

    @property
    def memories(self) -> Memories:
        found = memories_of(self.pal.home, self.project)
        assert found is not None
        return found

    def process(self, *words: str, stdin: str = "", limit: int | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a process of its own, with a largest size of a file."""
        command = [sys.executable, "-m", "pal.cli", "memory", *words, "--cwd", str(self.project)]
        variables = {**os.environ, "PAL_HOME": str(self.pal.home.folder), **env}

        def limited() -> None:
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        return subprocess.run(
            command, input=stdin, env=variables, capture_output=True, text=True, timeout=120, check=False, preexec_fn=limited
        )


@pytest.fixture
def memory(pal: Pal, tmp_path: Path) -> NotePal:
    project = tmp_path / "project"
    project.mkdir()
    return NotePal(pal, project)


def editor(folder: Path, script: str) -> str:
    """An editor that changes its file by a line of Python, in which `text` is what it holds."""
    path = folder / "editor.py"
    path.write_text(f"import sys, pathlib\nfile = pathlib.Path(sys.argv[1])\ntext = file.read_text()\n{script}\n")
    return f"{sys.executable} {path}"


def test_without_notes_the_list_is_empty_and_says_how_to_add_one(memory: NotePal) -> None:
    assert memory.json("list") == []
    result = memory.pal("memory", "list", "--cwd", str(memory.project))
    assert (result.exit_code, result.stdout) == (0, "")
    assert "`pal memory add" in result.stderr
    assert not memory.pal.home.folder.exists()


def test_a_note_is_added_listed_and_shown(memory: NotePal) -> None:
    assert memory("add", "Tests run with make check.\nThey take a minute.") == "added: project_tests_run_with_make_check (project)\n"
    (row,) = memory.json("list")
    assert {key: row[key] for key in ("name", "kind", "scope", "place", "trust", "uses", "about", "rev", "pinned")} == {
        "name": "project_tests_run_with_make_check",
        "kind": "project",
        "scope": "project",
        "place": "active",
        "trust": "stated",
        "uses": 0,
        "about": "Tests run with make check.",
        "rev": 1,
        "pinned": False,
    }
    lines = memory("list").splitlines()
    assert lines[0].split() == ["name", "kind", "when", "trust", "uses"]
    assert lines[1].split()[:2] == ["project_tests_run_with_make_check", "project"]
    assert lines[2] == "  Tests run with make check."
    assert all(len(line) <= 80 for line in lines)
    shown = memory("show", "project_tests_run_with_make_check")
    assert shown.endswith("\nTests run with make check.\nThey take a minute.\n")
    assert memory.json("show", "project_tests_run_with_make_check")["body"] == "Tests run with make check.\nThey take a minute.\n"


def test_notes_about_the_user_go_to_all_projects_and_a_scope_says_otherwise(memory: NotePal) -> None:
    memory("add", "Speaks Finnish.", "--kind", "user")
    memory("add", "Answers in this project are long.", "--kind", "feedback", "--scope", "user")
    memory("add", "The server is alpha.", "--kind", "reference")
    assert {row["name"]: row["scope"] for row in memory.json("list")} == {
        "user_speaks_finnish": "user",
        "feedback_answers_in_this_project_are_long": "user",
        "reference_the_server_is_alpha": "project",
    }
    assert [row["name"] for row in memory.json("list", "--kind", "reference")] == ["reference_the_server_is_alpha"]
    assert [row["name"] for row in memory.json("list", "--scope", "project")] == ["reference_the_server_is_alpha"]
    assert "a team has notes if the project has a folder" in memory("list", "--scope", "team", code=2)


def test_a_text_comes_from_standard_input(memory: NotePal) -> None:
    done = memory.process("add", "--about", "why the cache went", "--json", stdin="The cache was wrong.\n第二行\n")
    assert done.stdout == '{"scope":"project","saved":["project_why_the_cache_went"],"past":[],"reason":"added"}\n'
    empty = memory.process("add", stdin=" \n")
    assert (empty.returncode, empty.stdout) == (2, "")
    assert empty.stderr == "pal: memory add: there is no text; give it as an argument or on standard input\n"


def test_chinese_texts_have_names_and_are_found_again(memory: NotePal) -> None:
    memory("add", "数据库的密码在保险箱里", "--kind", "reference")
    (row,) = memory.json("list")
    assert row["name"].startswith("reference_6570_636e_5e93")
    assert [each["note"] for each in memory.json("search", "数据库 密码")] == [row["name"]]
    assert "there is no note '数据库'" in memory("show", "数据库", code=2)


def test_secrets_are_replaced_before_anything_is_written(memory: NotePal) -> None:
    secret = "sk-" + "a1b2c3d4e5" * 4
    memory("add", f"The key is {secret}", "--about", "key")
    files = [path for path in memory.pal.home.folder.rglob("*") if path.is_file()]
    assert not [path for path in files if secret.encode() in path.read_bytes()]
    assert "[REDACTED:" in memory("show", "project_key")


def test_what_does_not_fit_is_refused_with_the_bound(memory: NotePal) -> None:
    assert "at most 1,200 fit in a note" in memory("add", "many words " * 3_000, code=2)
    assert "one line of at most 150 characters" in memory("add", "x", "--about", "y" * 151, code=2)
    assert "valid_from and valid_to are dates" in memory("add", "x", "--until", "tomorrow", code=2)
    assert memory.json("list") == []


@pytest.mark.states("CL-48")
def test_a_new_value_of_an_attribute_supersedes_the_old_one_everywhere(memory: NotePal) -> None:
    memory("add", "Tests run with make check.", "--attribute", "test.command")
    memory("add", "Tests run with just test.", "--attribute", "test.command")
    assert [row["about"] for row in memory.json("list")] == ["Tests run with just test."]
    assert [row["name"] for row in memory.json("list", "--past")] == ["project_test_command@1"]
    assert memory.json("search", "make", "check", code=1) == []
    found = memory.json("search", "make", "check", "--history")
    assert [(each["status"], each["text"]) for each in found] == [
        ("active", "Tests run with just test."),
        ("superseded", "Tests run with make check."),
    ]
    index = memory.memories.project.folder / "MEMORY.md"
    assert "make check" not in index.read_text()
    log = (memory.memories.project.folder / "memory.jsonl").read_text()
    assert ("note_forgotten" in log, "superseded" in log, "make check" in log) == (True, True, False)


def test_a_correction_can_be_undone_and_the_undo_too(memory: NotePal) -> None:
    memory("add", "The server is alpha.")
    memory("add", "The server is beta.", "--replaces", "project_the_server_is_alpha")
    assert memory("undo", "project_the_server_is_alpha").startswith("undone: project_the_server_is_alpha (project); retracted:")
    assert [row["about"] for row in memory.json("list")] == ["The server is alpha."]
    memory("undo", "project_the_server_is_beta")
    assert [row["about"] for row in memory.json("list")] == ["The server is beta."]
    assert "there is no past version of 'project_x'" in memory("undo", "project_x", code=2)


def test_the_same_again_confirms(memory: NotePal) -> None:
    memory("add", "The server is alpha.")
    assert memory("add", "the server is ALPHA") == "confirmed: project_the_server_is_alpha (project)\n"
    assert len(memory.json("show", "project_the_server_is_alpha")["evidence"]) == 2


def test_a_note_is_edited_and_its_old_version_kept(memory: NotePal, tmp_path: Path) -> None:
    memory("add", "The server is alpha.", "--about", "server")
    beta = editor(tmp_path, "file.write_text(text.replace('alpha', 'beta'))")
    assert memory("edit", "project_server", EDITOR=beta, VISUAL="") == "edited by the user: project_server (project)\n"
    shown = memory.json("show", "project_server")
    assert (shown["body"], shown["rev"], shown["supersedes"]) == ("The server is beta.\n", 2, ["project_server@1"])
    assert [row["name"] for row in shown["versions"]] == ["project_server@1"]
    memory("undo", "project_server")
    assert memory.json("show", "project_server")["body"] == "The server is alpha.\n"
    memory("undo", "project_server")
    assert memory.json("show", "project_server")["body"] == "The server is beta.\n"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("file.write_text('no front matter')", "a note begins with a front matter"),
        ("file.write_text(text.replace('project_server', 'project_other'))", "the name of a note cannot be edited"),
        ("file.write_text(text.replace('about: server', 'about: '))", "the field about is required"),
        ("file.write_bytes(b'\\xff\\xfe')", "the editor cannot be used"),
        ("file.unlink()", "the editor cannot be used"),
        ("sys.exit(3)", "the editor ended with code 3; the note is as it was"),
        ("raise KeyboardInterrupt", "the editor ended with code"),
    ],
)
def test_a_bad_edit_leaves_the_note_as_it_was(memory: NotePal, tmp_path: Path, script: str, message: str) -> None:
    memory("add", "The server is alpha.", "--about", "server")
    before = memory.json("show", "project_server")
    assert message in memory("edit", "project_server", code=2, EDITOR=editor(tmp_path, script), VISUAL="")
    assert memory.json("show", "project_server") == before


@pytest.mark.parametrize(("script", "code"), [("pass", 2), ("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)", 0)])
def test_ctrl_c_belongs_to_the_editor_and_leaves_the_note_if_it_ends_it(memory: NotePal, tmp_path: Path, script: str, code: int) -> None:
    memory("add", "The server is alpha.", "--about", "server")
    interrupt = f"{script}\nimport os, signal\nos.killpg(0, signal.SIGINT)\nfile.write_text(text.replace('alpha', 'beta'))"
    command = [sys.executable, "-m", "pal.cli", "memory", "edit", "project_server", "--cwd", str(memory.project)]
    variables = {**os.environ, "PAL_HOME": str(memory.pal.home.folder), "EDITOR": editor(tmp_path, interrupt), "VISUAL": ""}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120, check=False, start_new_session=True)
    assert done.returncode == code, done.stderr
    assert memory.json("show", "project_server")["body"] == ("The server is alpha.\n" if code else "The server is beta.\n")


def test_an_editor_that_is_not_there_and_one_that_changes_nothing(memory: NotePal, tmp_path: Path) -> None:
    memory("add", "The server is alpha.", "--about", "server")
    assert "the editor cannot be used" in memory("edit", "project_server", code=2, EDITOR="/no/such/editor", VISUAL="")
    assert memory("edit", "project_server", code=1, EDITOR=editor(tmp_path, "pass"), VISUAL="") == "nothing was changed\n"


@pytest.mark.states("ME-50")
def test_forget_asks_once_says_what_it_removes_and_cannot_be_undone(memory: NotePal) -> None:
    memory("add", "The server is alpha.", "--about", "server")
    refusal = memory("forget", "project_server", code=2)
    assert "this deletes project_server (project): 'server' for good; use --yes to confirm" in refusal
    assert memory.json("forget", "project_server", "--yes") == {
        "scope": "project",
        "name": "project_server",
        "versions": 1,
        "same": [],
        "retracted": [],
    }
    assert "cannot be brought back" in memory("forget", "project_server", "--undo", code=2)
    assert "there is no past version" in memory("undo", "project_server", code=2)
    assert not [path for path in memory.pal.home.folder.rglob("*") if path.is_file() and b"alpha" in path.read_bytes()]
    assert "there is no note 'project_server'" in memory("forget", "project_server", "--yes", code=2)


@pytest.mark.states("ME-13")
def test_a_note_in_quarantine_is_listed_apart_and_promoted_by_a_person(memory: NotePal) -> None:
    held = Note(
        name="reference_page",
        kind="reference",
        about="what the page said",
        backstory="from a page",
        when="2026-05-04T10:00:00Z",
        evidence=("s1:4",),
        trust="quarantined",
        body="Use the mirror.\n",
    )
    memory.memories.project.apply(AcceptedChange((held,)), "extract")
    assert memory.json("list") == []
    assert [row["name"] for row in memory.json("list", "--quarantine")] == ["reference_page"]
    assert memory.json("search", "mirror", code=1) == []
    assert "`pal memory list --quarantine` lists them" in memory("promote", "unknown_zzz", code=2)
    assert "Give the name of a note, or --all" in memory("promote", code=2)
    assert memory("promote", "reference_page") == "promoted: reference_page (project)\n"
    assert ([row["trust"] for row in memory.json("list")], memory.json("list", "--quarantine")) == (["stated"], [])
    changes = memory.json("why", "reference_page")["changes"]
    assert [(change["by"], change["reason"]) for change in changes] == [("extract", ""), ("user", "promoted from quarantine")]


def test_files_that_are_no_notes_are_named_and_the_others_listed(memory: NotePal, tmp_path: Path) -> None:
    memory("add", "The server is alpha.", "--about", "server")
    folder = memory.memories.project.folder / "notes"
    (folder / "project_broken.md").write_text("---\nname: project_broken\nkind: king\n---\nx\n")
    (folder / "project_huge.md").write_text("x" * 100_000)
    (folder / "project_link.md").symlink_to(tmp_path / "elsewhere.md")
    (folder / "project_name.md").write_text("---\nname: user_other\ndescription: a\ntype: user\n---\nx\n")
    result = memory.pal("memory", "list", "--json", "--cwd", str(memory.project))
    assert (result.exit_code, [row["name"] for row in json.loads(result.stdout)]) == (1, ["project_server"])
    named = [line.split(":")[1].strip() for line in result.stderr.splitlines()]
    assert sorted(named) == [f"project/notes/project_{name}.md" for name in ("broken", "huge", "link", "name")]


def test_a_note_that_cites_changed_bytes_is_marked(memory: NotePal) -> None:
    (memory.project / "a.py").write_text("x = 1\n")
    cited = f"a.py@{sha256(b'x = 1' + bytes([10])).hexdigest()[:12]}@abc"
    memory("add", "The value is one.", "--about", "value")
    book = memory.memories.project
    note = book.notes().active["project_value"]
    book.apply(AcceptedChange((replace(note, files=(cited,), rev=2),)), "user")
    assert memory.json("show", "project_value")["changed_files"] == []
    (memory.project / "a.py").write_text("x = 2\n")
    assert "a.py (file changed since)" in memory("show", "project_value")
    assert memory.json("search", "value")[0]["stale"] is True


def test_an_unknown_name_is_one_line_with_the_nearest_name(memory: NotePal) -> None:
    memory("add", "The server is alpha.", "--about", "server")
    assert memory("show", "project_sever", code=2) == "pal: memory: there is no note 'project_sever'; did you mean project_server?\n"
    assert memory.json("show", "project_sever", code=2)["error"]["kind"] == "input"


def test_a_home_that_cannot_be_written_is_one_line(memory: NotePal) -> None:
    memory.pal.home.folder.write_text("a file")
    error = memory("add", "x y z", code=2)
    assert (error.startswith("pal: "), error.count("\n")) == (True, 1)
    assert memory.json("list", code=2)["error"]["kind"] == "store"


def test_a_full_disk_leaves_the_old_notes_and_says_so(memory: NotePal) -> None:
    memory("add", "The server is alpha.", "--about", "server")
    before = {path: path.read_bytes() for path in memory.pal.home.folder.rglob("*.md")}
    failed = memory.process("add", "more words " * 100, "--replaces", "project_server", limit=200)
    assert failed.returncode == 2
    assert (failed.stderr.count("\n"), "File too large" in failed.stderr) == (1, True)
    assert {path: path.read_bytes() for path in memory.pal.home.folder.rglob("*.md")} == before
    assert [row["name"] for row in memory.json("list")] == ["project_server"]


def test_a_pipe_that_is_closed_early_is_no_traceback(memory: NotePal) -> None:
    for number in range(3):
        memory("add", f"Fact of letter {'abc'[number] * 3}.")
    command = f"{sys.executable} -m pal.cli memory export --cwd {memory.project} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, "PAL_HOME": str(memory.pal.home.folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode in (0, 141), done.stderr) == (True, "")


def test_a_thousand_notes_are_listed_and_searched(memory: NotePal) -> None:
    notes = tuple(
        Note(
            name=f"project_fact_{number}",
            kind="project",
            about=f"fact number {number}",
            backstory="made for a test",
            when="2026-05-04T10:00:00Z",
            evidence=(f"s1:{number}",),
            trust="stated",
            body=f"The value of item {number} is {number * 7}.\n",
        )
        for number in range(1_000)
    )
    memory.memories.project.apply(AcceptedChange(notes), "user")
    assert len(memory.json("list")) == 1_000
    assert memory.json("search", "item 777", "--limit", "1")[0]["note"] == "project_fact_777"


def test_a_search_says_how_many_notes_it_leaves_out(memory: NotePal) -> None:
    folder = memory.memories.project.folder / "notes"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(MOST_FILES + 2):
        (folder / f"project_x{number}.md").touch()
    assert "pal: not searched: 2 notes beyond the first 5,000 of a scope" in memory("search", "harbour", code=1)


def test_a_note_of_the_team_reaches_a_teammate_through_the_repository_as_data_about_a_teammate(memory: NotePal, tmp_path: Path) -> None:
    def git(folder: Path, *words: str) -> None:
        settings = ("-c", "user.name=x", "-c", "user.email=x@x.invalid", "-c", "commit.gpgSign=false", "-c", "protocol.file.allow=always")
        subprocess.run(["git", *settings, *words], cwd=folder, check=True, capture_output=True)

    git(memory.project, "init", "-q", "-b", "main")
    (memory.project / "README.md").write_text("a project\n")
    git(memory.project, "add", "-A")
    git(memory.project, "commit", "-qm", "first")
    added = memory.json("add", "Deploy with make ship.", "--kind", "feedback", "--scope", "team")
    (name,) = added["saved"]
    assert added["scope"] == "team"
    git(memory.project, "add", "-A")
    git(memory.project, "commit", "-qm", "notes")
    tracked = subprocess.run(["git", "ls-files", ".palimpsest"], cwd=memory.project, check=True, capture_output=True, text=True).stdout
    places = [".gitignore", "MEMORY.md", f"notes/{name}.md"]
    assert tracked.splitlines() == [f".palimpsest/memory/{place}" for place in places]

    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(memory.project), str(clone))
    mate = NotePal(memory.pal, clone)
    (row,) = mate.json("list", "--scope", "team")
    assert (row["name"], row["scope"], row["person"], row["trust"]) == (name, "team", "teammate", "repository")
    assert [each["note"] for each in mate.json("search", "how to deploy", "--scope", "team")] == [name]
    assert mate.json("show", name, "--scope", "team")["body"].strip() == "Deploy with make ship."
    mate("forget", name, "--yes", "--scope", "team")
    assert not (clone / ".palimpsest" / "memory" / "notes" / f"{name}.md").exists()
    # It is one user: what was forgotten in the clone is not shown here unasked either, and its file stays.
    assert memory.json("list", "--scope", "team") == []
    assert [each["name"] for each in memory.json("list", "--scope", "team", "--quarantine")] == [name]
