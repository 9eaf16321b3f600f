"""A session that leaves for another program and comes back is still one session."""

import json
from pathlib import Path

import pytest
from pal_runs import SMALL, Pal, edited, small

from palimpsest.core.events import UserSaid
from palimpsest.core.items import Text
from palimpsest.core.log import Log
from palimpsest.stores.in_memory import FixedClock

CLAUDE_SESSION = "11111111-2222-4333-8444-555555555555"


def homes(folder: Path) -> dict[str, str]:
    return {"CLAUDE_CONFIG_DIR": str(folder / "claude"), "CODEX_HOME": str(folder / "codex")}


def installed(pal: Pal, session: str, form: str, folder: Path, *words: str) -> Path:
    """The file of a session that was installed for a program."""
    done = pal("export", session, "--to", form, "--install", "--force", *words, **homes(folder))
    assert done.exit_code == 0, done.output
    (path,) = (folder / form).rglob("*.jsonl")
    return path


def imported(pal: Pal, path: Path) -> tuple[int, list[str]]:
    """How many events an import added, and to which sessions."""
    done = pal.json("import", str(path))
    assert (done["skipped"], done["bad_lines"]) == ([], 0)
    return done["events"], [file["session"] for file in done["files"]]


def add(path: Path, form: str, word: str) -> None:
    """What the program writes when the user goes on in it."""
    last = [json.loads(line) for line in path.read_bytes().splitlines()]
    lines: list[dict[str, object]]
    if form == "claude":
        newest = next(line for line in reversed(last) if line.get("uuid"))
        common = {name: newest[name] for name in ("isSidechain", "userType", "cwd", "sessionId", "version", "gitBranch")}
        stamp = {"timestamp": "2031-04-03T00:00:00.000Z"}
        uuid = f"aaaaaaaa-0000-4000-8000-{abs(hash(word)) % 10**12:012}"
        message = {"role": "user", "content": word}
        said = {"type": "user", "message": message, "permissionMode": "default"}
        lines = [{"parentUuid": newest["uuid"], **common, **said, "uuid": uuid, **stamp}]
    else:
        payload = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": word}]}
        lines = [
            {"timestamp": "2031-04-03T00:00:00.000Z", "type": "event_msg", "payload": {"type": "task_started", "turn_id": "t"}},
            {"timestamp": "2031-04-03T00:00:01.000Z", "type": "response_item", "payload": payload},
            {"timestamp": "2031-04-03T00:00:02.000Z", "type": "event_msg", "payload": {"type": "task_complete", "turn_id": "t"}},
        ]
    with path.open("ab") as file:
        file.writelines(json.dumps(line).encode() + b"\n" for line in lines)


def say(pal: Pal, session: str, word: str) -> None:
    with Log.open(pal.home.store, session, FixedClock(1_932_900_000_000, 1_000), write=True) as log:
        log.append(UserSaid((Text(word),)))


def shown(pal: Pal, session: str) -> list[str]:
    """The user's messages in the view."""
    with pal.home.open(session, write=False) as log:
        return [getattr(item.content, "text", "") for item in log.view.items if item.kind == "user"]


@pytest.mark.parametrize("form", ["claude", "codex"])
@pytest.mark.parametrize("begin", [small, edited], ids=["as it was", "folded"])
def test_a_session_that_comes_back_unchanged_is_not_doubled(pal: Pal, tmp_path: Path, form: str, begin: object) -> None:
    assert callable(begin)
    begin(pal.home)
    before = pal.home.store.path_of(SMALL).read_bytes()
    path = installed(pal, SMALL, form, tmp_path)

    assert imported(pal, path) == (0, [SMALL])
    assert imported(pal, installed(pal, SMALL, form, tmp_path, "--redact")) == (0, [SMALL])
    assert (pal.home.store.sessions(), pal.home.store.path_of(SMALL).read_bytes()) == ([SMALL], before)


@pytest.mark.parametrize("form", ["claude", "codex"])
def test_what_the_other_program_added_goes_on_in_the_session_it_came_from(pal: Pal, tmp_path: Path, form: str) -> None:
    small(pal.home)
    path = installed(pal, SMALL, form, tmp_path)
    assert imported(pal, path)[0] == 0
    add(path, form, "and now the tests")
    first, sessions = imported(pal, path)
    add(path, form, "and the docs")
    second, _ = imported(pal, path)

    assert (sessions, first > 0, second > 0) == ([SMALL], True, True)
    assert pal.home.store.sessions() == [SMALL]
    assert shown(pal, SMALL) == ["What is in a.py?", "超时改成 30 秒", "and now the tests", "and the docs"]
    assert pal.json("verify", SMALL)["ok"]
    assert imported(pal, installed(pal, SMALL, form, tmp_path)) == (0, [SMALL])


@pytest.mark.parametrize("form", ["claude", "codex"])
def test_work_that_went_on_here_stays_and_what_came_back_is_a_branch_beside_it(pal: Pal, tmp_path: Path, form: str) -> None:
    small(pal.home)
    path = installed(pal, SMALL, form, tmp_path)
    say(pal, SMALL, "here")
    add(path, form, "there")

    assert imported(pal, path)[1] == [SMALL]
    assert shown(pal, SMALL) == ["What is in a.py?", "超时改成 30 秒", "here"]
    with pal.home.open(SMALL, write=False) as log:
        (branch,) = [event for event in log.reader.run(0, log.tip) if isinstance(event.body, UserSaid) and "there" in str(event.body.parts)]
        assert [getattr(item.content, "text", "") for item in log.state_at(branch.seq).view.items if item.kind == "user"][1:] == [
            "超时改成 30 秒",
            "there",
        ]


def claude_file(folder: Path) -> Path:
    """A session that began in Claude Code."""
    common = {
        "isSidechain": False,
        "userType": "external",
        "cwd": "/repo",
        "sessionId": CLAUDE_SESSION,
        "version": "2.1.325",
        "gitBranch": "",
    }
    said = {"message": {"role": "user", "content": "go"}, "permissionMode": "default", "uuid": "u1"}
    line = {"parentUuid": None, **common, "type": "user", **said}
    path = folder / "claude" / "projects" / "-repo" / f"{CLAUDE_SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    data = json.dumps({**line, "timestamp": "2031-04-01T00:00:00.000Z"}, separators=(",", ":"))
    path.write_bytes(data.encode() + b"\n")
    return path


def test_a_session_that_goes_back_with_what_was_added_here_is_not_doubled(pal: Pal, tmp_path: Path) -> None:
    path = claude_file(tmp_path)
    session = f"claude-{CLAUDE_SESSION}"
    pal.json("import", str(path))
    say(pal, session, "here")
    assert installed(pal, session, "claude", tmp_path) == path
    assert imported(pal, path) == (0, [session])
    add(path, "claude", "there")

    assert imported(pal, path) == (1, [session])
    assert shown(pal, session) == ["go", "here", "there"]
    assert imported(pal, installed(pal, session, "claude", tmp_path)) == (0, [session])


def test_a_session_of_one_program_that_was_in_another_keeps_both_kinds_of_lines(pal: Pal, tmp_path: Path) -> None:
    original = claude_file(tmp_path).read_bytes()
    session = f"claude-{CLAUDE_SESSION}"
    pal.json("import", str(tmp_path))
    codex = installed(pal, session, "codex", tmp_path)
    add(codex, "codex", "in codex")

    assert imported(pal, codex)[1] == [session]
    assert shown(pal, session) == ["go", "in codex"]
    back = installed(pal, session, "claude", tmp_path).read_bytes()
    assert back.startswith(original)
    assert [json.loads(line)["message"]["content"] for line in back.splitlines() if b'"user"' in line] == ["go", "in codex"]


def test_an_earlier_state_comes_back_to_the_same_session_as_a_branch(pal: Pal, tmp_path: Path) -> None:
    small(pal.home)
    path = installed(pal, SMALL, "claude", tmp_path, "--at", "8")
    assert imported(pal, path) == (0, [SMALL])
    add(path, "claude", "there")

    assert imported(pal, path)[1] == [SMALL]
    assert shown(pal, SMALL) == ["What is in a.py?", "超时改成 30 秒"]


def test_a_file_that_only_claims_to_come_from_a_session_is_a_session_of_its_own(pal: Pal, tmp_path: Path) -> None:
    small(pal.home)
    path = installed(pal, SMALL, "claude", tmp_path)
    before = pal.home.store.path_of(SMALL).read_bytes()
    data = path.read_bytes()
    link = json.loads(data.splitlines()[0])["palimpsest"].rpartition(":")[2]
    path.write_bytes(data.replace(link.encode(), b"0123456789abcdef"))

    _, sessions = imported(pal, path)
    assert sessions == [f"claude-{path.stem}"]
    assert pal.home.store.path_of(SMALL).read_bytes() == before
    # In a home without the original the file is imported like any other.
    assert imported(Pal(tmp_path / "other"), path)[1] == sessions
