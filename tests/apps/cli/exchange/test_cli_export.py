import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from corpus import GOLDEN
from msgspec import Raw
from pal_runs import SMALL, Pal, edited, long, small

from pal.cli.export import FORMS
from palimpsest.core.events import ModelReplied, SessionOpened, Usage, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.log import Log
from palimpsest.exchange.claude.sessions_index import with_entry
from palimpsest.stores.in_memory import FixedClock
from palimpsest.wire.models import WireName
from palimpsest.wire.wires import check_request

_LIMITED = """
import resource, signal
from pal.cli.main import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))
main()
"""
KEY = "sk-ant-" + "a1B2" * 10

# The link of the last event of the small session.
LINK = "13:bd73b3ca7b557ccb58f5c9664055f81865209da81e1631fff4a7ffe3611d0fa8"


def _say(pal: Pal, text: str) -> None:
    with Log.open(pal.home.store, SMALL, FixedClock(1_932_800_500_000, 1_000), write=True) as log:
        log.append(UserSaid((Text(text),)))


@pytest.mark.parametrize(("form", "wire"), [("messages", "anthropic"), ("responses", "responses"), ("chat", "chat")])
def test_a_request_goes_to_standard_output_byte_for_byte(pal: Pal, form: str, wire: WireName) -> None:
    edited(pal.home)
    exported = pal("export", SMALL, "--to", form)

    assert (exported.exit_code, exported.stderr) == (0, "")
    assert exported.stdout_bytes == pal("show", SMALL, "--request", "next", "--wire", wire).stdout_bytes
    assert check_request(wire, exported.stdout_bytes) == ()


def test_a_request_of_the_whole_history_shows_what_edits_have_hidden(pal: Pal) -> None:
    edited(pal.home)
    seen = pal("export", SMALL, "--to", "messages").stdout
    whole = pal("export", SMALL, "--to", "messages", "--whole").stdout

    assert ("I look." in seen, "(hidden)" in seen) == (False, True)
    assert ("I look." in whole, "(hidden)" in whole, "a.py was read." in whole) == (True, False, False)
    assert check_request("anthropic", whole.encode()) == ()


def test_a_pretty_request_is_the_same_value_on_many_lines(pal: Pal) -> None:
    small(pal.home)
    exact, pretty = (pal("export", SMALL, "--to", "chat", *words).stdout for words in ((), ("--pretty",)))

    assert (exact.count("\n"), pretty.count("\n") > 20) == (0, True)
    assert json.loads(pretty) == json.loads(exact)


def test_an_earlier_request_ends_where_one_says(pal: Pal) -> None:
    small(pal.home)
    body = json.loads(pal("export", SMALL, "--to", "messages", "--at", "2").stdout)

    assert [message["role"] for message in body["messages"]] == ["user"]
    assert json.loads(pal("export", SMALL, "--to", "messages", "--at", "2", "--whole").stdout) == body


def test_a_request_for_another_model_names_it(pal: Pal) -> None:
    small(pal.home)
    assert json.loads(pal("export", SMALL, "--to", "responses", "--model", "gpt-5.4").stdout)["model"] == "gpt-5.4"


def test_a_page_goes_to_a_file_whole_and_with_ordinary_permissions(pal: Pal, tmp_path: Path) -> None:
    small(pal.home)
    for form, opening in (("markdown", b"# What is in a.py?\n"), ("html", b"<!DOCTYPE html>\n")):
        out = tmp_path / f"page.{form}"
        reported = pal.json("export", SMALL, "--to", form, "--out", str(out))
        assert reported == {"session": SMALL, "to": form, "path": str(out), "bytes": out.stat().st_size, "events": 14, "link": LINK}
        assert out.read_bytes().startswith(opening)
        assert out.read_bytes() == pal("export", SMALL, "--to", form).stdout_bytes
        mask = os.umask(0)
        os.umask(mask)
        assert stat.S_IMODE(out.stat().st_mode) == 0o666 & ~mask
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "page.html", "page.markdown"]


def test_what_json_prints_without_a_file_holds_the_content(pal: Pal) -> None:
    small(pal.home)
    reported = pal.json("export", SMALL, "--to", "markdown", "--at", "2")

    assert {name: reported[name] for name in ("session", "to", "path", "events")} == {
        "session": SMALL, "to": "markdown", "path": None, "events": 3,
    }  # fmt: skip
    assert reported["content"] == pal("export", SMALL, "--to", "markdown", "--at", "2").stdout
    assert reported["bytes"] == len(reported["content"].encode())


def test_a_file_that_is_there_is_named_and_stays_unless_forced(pal: Pal, tmp_path: Path) -> None:
    small(pal.home)
    out = tmp_path / "page.md"
    out.write_text("mine")
    refused = pal("export", SMALL, "--to", "markdown", "--out", str(out))
    assert (refused.exit_code, out.read_text()) == (2, "mine")
    assert refused.stderr == f"pal: {out}: this file exists and was not changed; --force replaces it\n"

    assert pal("export", SMALL, "--to", "markdown", "--out", str(out), "--force").exit_code == 0
    assert out.read_text().startswith("# What is in a.py?")


def test_a_link_that_leads_nowhere_counts_as_a_file(pal: Pal, tmp_path: Path) -> None:
    small(pal.home)
    (tmp_path / "link").symlink_to(tmp_path / "target")
    assert pal("export", SMALL, "--to", "markdown", "--out", str(tmp_path / "link")).exit_code == 2
    assert pal("export", SMALL, "--to", "markdown", "--out", str(tmp_path / "link"), "--force").exit_code == 0
    assert ((tmp_path / "link").is_symlink(), (tmp_path / "target").is_file()) == (True, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--to", "markdown", "--at", "99"), f"pal: {SMALL}: there is no event 99; the newest is 13\n"),
        (("--to", "markdown", "--out", "/no/folder/x"), "pal: /no/folder/x: cannot write it: there is no folder /no/folder\n"),
        (("--to", "markdown", "--out", "/"), "pal: /: this is a folder; name a file\n"),
        (
            ("--to", "html", "--install"),
            "pal: export: --install and --cwd work only with --to claude, codex, opencode; see `pal export --help`\n",
        ),
        (
            ("--to", "html", "--whole"),
            "pal: export: --whole, --pretty and --model work only with --to messages, responses, chat; see `pal export --help`\n",
        ),
        (
            ("--to", "opencode", "--install"),
            "pal: export: OpenCode keeps sessions in a database: --out FILE, then `opencode import FILE`; see `pal export --help`\n",
        ),
        (("--to", "chat", "--full"), "pal: export: --full works only with --to markdown or html; see `pal export --help`\n"),
        (("--to", "html", "--content"), "pal: export: --content works only with --to otel; see `pal export --help`\n"),
        (("--to", "chat", "--model", "nobody"), None),
        ((), None),
        (("--to", "word"), None),
    ],
)
def test_a_wrong_wish_is_one_line(pal: Pal, words: tuple[str, ...], message: str | None) -> None:
    small(pal.home)
    result = pal("export", SMALL, *words)

    assert (result.exit_code, result.stdout) == (2, "")
    assert re.fullmatch(r"pal: .+\n", result.stderr)
    assert message in {None, result.stderr}


@pytest.mark.parametrize("form", ["messages", "responses", "chat", "markdown", "html"])
def test_secrets_are_replaced_on_demand_and_the_log_keeps_them(pal: Pal, form: str) -> None:
    small(pal.home)
    _say(pal, f"my key is {KEY}, and password: hunter2hunter2")
    plain = pal("export", SMALL, "--to", form).stdout
    cleaned = pal("export", SMALL, "--to", form, "--redact").stdout

    assert (KEY in plain, "hunter2hunter2" in plain) == (True, True)
    assert (KEY in cleaned, "hunter2hunter2" in cleaned) == (False, False)
    assert "[REDACTED:anthropic]" in cleaned
    assert pal("export", SMALL, "--to", form).stdout == plain


def test_long_results_are_cut_unless_wanted_in_full(pal: Pal) -> None:
    long(pal.home)
    cut, full = (len(pal("export", "last", "--to", "markdown", *words).stdout) for words in ((), ("--full",)))
    assert full > cut > 10_000


def test_a_full_disk_leaves_one_line_and_no_file(pal: Pal, tmp_path: Path) -> None:
    small(pal.home)
    command = [sys.executable, "-B", "-c", _LIMITED, "export", SMALL, "--to", "html", "--out", str(tmp_path / "x.html")]
    settings = {**os.environ, "PAL_HOME": str(pal.home.folder)}
    done = subprocess.run(command, capture_output=True, env=settings, check=False, timeout=120, text=True)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"pal: {tmp_path / 'x.html'}: cannot write it: File too large\n"
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_a_full_device_and_a_pipe_are_written_through(pal: Pal, tmp_path: Path) -> None:
    small(pal.home)
    full = pal("export", SMALL, "--to", "html", "--out", "/dev/full")
    assert (full.exit_code, full.stderr) == (2, "pal: /dev/full: cannot write it: the disk is full; free some space, nothing was lost\n")

    command = [sys.executable, "-m", "pal.cli", "export", SMALL, "--to", "markdown", "--out", "/dev/stdout"]
    settings = {**os.environ, "PAL_HOME": str(pal.home.folder)}
    done = subprocess.run(command, capture_output=True, env=settings, check=False, timeout=120)
    assert done.stdout == pal("export", SMALL, "--to", "markdown").stdout_bytes


def _homes(tmp_path: Path) -> dict[str, str]:
    return {"CLAUDE_CONFIG_DIR": str(tmp_path / "claude"), "CODEX_HOME": str(tmp_path / "codex")}


def test_a_session_is_put_where_claude_code_finds_it(pal: Pal, tmp_path: Path) -> None:
    small(pal.home)
    done = pal("export", SMALL, "--to", "claude", "--install", **_homes(tmp_path))
    name = "24efcb8e-9eb9-5b8f-8634-72b340c08f0a"
    path = tmp_path / "claude" / "projects" / "shop" / f"{name}.jsonl"

    assert (done.exit_code, done.stdout) == (0, "")
    size, link = path.stat().st_size, pal.json("verify", SMALL)["link"]
    assert done.stderr == f"{path}: {size:,} bytes, 14 events, link 13:{link}\nto resume it: cd shop && claude --resume {name}\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {json.loads(line)["sessionId"] for line in path.read_bytes().splitlines()} == {name}


def test_a_session_is_put_where_codex_finds_it(pal: Pal, tmp_path: Path) -> None:
    small(pal.home)
    reported = msgspec.json.decode(pal("export", SMALL, "--to", "codex", "--install", "--json", **_homes(tmp_path)).stdout)
    path = Path(reported["path"])
    (meta, *_) = [json.loads(line) for line in path.read_bytes().splitlines()]

    assert path.parent == tmp_path / "codex" / "sessions" / "2031" / "04" / "01"
    assert path.name == f"rollout-2031-04-01T09-00-00-{meta['payload']['id']}.jsonl"
    assert reported == {"session": SMALL, "to": "codex", "path": str(path), "bytes": path.stat().st_size, "events": 14, "link": LINK}


@pytest.mark.parametrize("form", ["claude", "codex"])
def test_a_session_that_is_there_already_is_replaced_only_by_force(pal: Pal, tmp_path: Path, form: str) -> None:
    small(pal.home)
    words = ("export", SMALL, "--to", form, "--install")
    assert pal(*words, **_homes(tmp_path)).exit_code == 0
    (path,) = (path for path in (tmp_path / form).rglob("*.jsonl"))
    path.write_text("gone on\n")
    again = pal(*words, **_homes(tmp_path))

    assert (again.exit_code, path.read_text()) == (2, "gone on\n")
    assert again.stderr == f"pal: {path}: this file exists and was not changed; --force replaces it\n"
    assert pal(*words, "--force", **_homes(tmp_path)).exit_code == 0
    assert path.read_text() != "gone on\n"


@pytest.mark.parametrize("form", ["claude", "codex"])
def test_the_file_of_another_agent_says_where_it_belongs(pal: Pal, tmp_path: Path, form: str) -> None:
    small(pal.home)
    out = tmp_path / "out.jsonl"
    reported = pal("export", SMALL, "--to", form, "--out", str(out), **_homes(tmp_path)).stderr
    (place,) = re.findall(r"save it as (\S+\.jsonl), then cd shop && ", reported)
    pal("export", SMALL, "--to", form, "--install", **_homes(tmp_path))

    assert Path(place).read_bytes() == out.read_bytes()
    assert pal("export", SMALL, "--to", form).stdout_bytes == out.read_bytes()


@pytest.mark.parametrize("form", ["claude", "codex"])
def test_an_earlier_state_is_a_session_of_its_own_and_always_the_same(pal: Pal, tmp_path: Path, form: str) -> None:
    small(pal.home)
    before = pal.home.store.sessions()
    earlier, again, now = (pal("export", SMALL, "--to", form, *words).stdout for words in (("--at", "8"), ("--at", "8"), ()))

    assert earlier == again
    assert ("ten seconds" in earlier, "30 秒" in earlier, "30 秒" in now) == (True, False, True)
    assert not set(re.findall(r"[0-9a-f]{8}-[0-9a-f-]{27}", earlier)) & set(re.findall(r"[0-9a-f]{8}-[0-9a-f-]{27}", now))
    assert pal.home.store.sessions() == before


@pytest.mark.parametrize("form", ["claude", "codex"])
def test_lines_for_other_agents_stay_json_without_their_secrets(pal: Pal, form: str) -> None:
    small(pal.home)
    _say(pal, f'my "key" is {KEY}')
    exact, cleaned = (pal("export", SMALL, "--to", form, *words).stdout.splitlines() for words in ((), ("--redact",)))

    assert len(cleaned) == len(exact)
    assert sum(one != other for one, other in zip(exact, cleaned, strict=True)) >= 1
    assert all(isinstance(json.loads(line), dict) for line in cleaned)
    assert (KEY in "".join(exact), KEY in "".join(cleaned)) == (True, False)


@pytest.mark.parametrize("form", FORMS)
def test_a_session_in_which_nothing_happened_and_a_fork_can_be_written_too(pal: Pal, form: str) -> None:
    small(pal.home)
    fork = pal("fork", SMALL, "--at", "8").stdout.strip()
    with Log.create(pal.home.store, SessionOpened("empty"), FixedClock(1_932_800_400_000, 1_000)) as log:
        log.sync()

    assert (pal("export", "empty", "--to", form).exit_code, pal.json("export", "empty", "--to", form)["events"]) == (0, 1)
    forked = pal("export", fork, "--to", form, *(["--content"] if form == "otel" else []))
    # The calls before a fork were not made in it: their spans are those of the session that it was forked from.
    assert (forked.exit_code, "ten seconds" in forked.stdout, "30 秒" in forked.stdout) == (0, form != "otel", False)


@pytest.mark.states("PV-82")
def test_the_tokens_of_all_spans_are_those_that_the_list_of_sessions_shows(pal: Pal, tmp_path: Path) -> None:
    edited(pal.home)
    with Log.open(pal.home.store, SMALL, FixedClock(1_932_800_500_000, 1_000), write=True) as log:
        log.append(UserSaid((Text(f"my key is {KEY}"),)))
        log.append(ModelReplied((Text("Noted.", "assistant"),), usage=Usage(60, 700, 40, output=5), model="claude-sonnet-4-5"))
    out = tmp_path / "spans.json"
    assert pal("export", SMALL, "--to", "otel", "--out", str(out)).exit_code == 0
    spans = json.loads(out.read_text())["resourceSpans"][0]["scopeSpans"][0]["spans"]
    (row,) = pal.json("sessions")
    counts = [each for span in spans for each in span["attributes"] if re.fullmatch(r"gen_ai\.usage\.(in|out)put_tokens", each["key"])]
    assert sum(int(each["value"]["intValue"]) for each in counts) == row["tokens"] == 1_635
    assert [event["name"] for event in spans[-1]["events"]] == ["palimpsest.edit"] * 2

    plain, content, cleaned = (
        pal("export", SMALL, "--to", "otel", *words).stdout for words in ((), ("--content",), ("--content", "--redact"))
    )
    assert plain == out.read_text()
    assert [(KEY in each, "timeout = 10" in each) for each in (plain, content, cleaned)] == [(False, False), (True, True), (False, True)]


def test_a_session_lies_in_one_place_only_however_its_file_is_called(pal: Pal, tmp_path: Path) -> None:
    small(pal.home)
    words = ("export", SMALL, "--to", "codex", "--install")
    pal(*words, **_homes(tmp_path))
    (path,) = (tmp_path / "codex").rglob("*.jsonl")
    moved = path.with_name(path.name.replace("T09-00-00", "T09-00-01"))
    path.rename(moved)

    assert pal(*words, **_homes(tmp_path)).stderr.startswith(f"pal: {moved}: this file exists")


@pytest.mark.parametrize(("form", "origin"), [("claude", "claude-code"), ("codex", "codex")])
def test_no_id_leads_out_of_the_folder(pal: Pal, tmp_path: Path, form: str, origin: str) -> None:
    foreign = Raw(msgspec.json.encode({"key": "../../../../evil"}))
    opened = SessionOpened("sly", cwd="/a", origin=origin, meta={"id": "../../../../evil"}, foreign=foreign)
    with Log.create(pal.home.store, opened, FixedClock(1_932_800_400_000, 1_000)) as log:
        log.append(UserSaid((Text("hello"),)))
    done = pal("export", "sly", "--to", form, "--install", **_homes(tmp_path))

    assert done.exit_code == 0
    assert [path.parts[len(tmp_path.parts)] for path in tmp_path.rglob("*evil*")] == [form]


def test_a_session_goes_on_in_another_folder_when_one_says_so(pal: Pal, tmp_path: Path) -> None:
    small(pal.home)
    reported = pal("export", SMALL, "--to", "claude", "--install", "--cwd", str(tmp_path / "my_shop"), **_homes(tmp_path)).stderr
    (path,) = (tmp_path / "claude").rglob("*.jsonl")

    assert path.parent.name == re.sub(r"[^A-Za-z0-9]", "-", str(tmp_path / "my_shop"))
    assert f"to resume it: cd {tmp_path / 'my_shop'} && claude --resume " in reported


def _told(lines: bytes) -> list[Any]:
    return [json.loads(line) for line in lines.splitlines()]


def _folders(lines: bytes) -> set[str]:
    """The folders that lines for Claude Code or Codex name for themselves, for the session, a turn or the settings."""
    payloads = [line.get("payload", {}) for line in _told(lines)]
    tables = [*_told(lines), *payloads, *(payload.get("thread_settings", {}) for payload in payloads)]
    return {folder for table in tables if "cwd" in table for folder in (table["cwd"], *table.get("runtime_workspace_roots", []))}


@pytest.mark.parametrize("form", ["claude", "codex"])
def test_the_folder_to_go_on_in_is_written_into_the_file(pal: Pal, tmp_path: Path, form: str) -> None:
    small(pal.home)
    lines = pal("export", SMALL, "--to", form, "--cwd", str(tmp_path / "my_shop")).stdout_bytes
    assert _folders(lines) == {str(tmp_path / "my_shop")}
    assert _folders(pal("export", SMALL, "--to", form).stdout_bytes) == {"shop"}


_CLAUDE = "69901b92-81d1-436f-9093-e5364257259e"
_CODEX = "01a1ddea-7f4d-7182-8df0-6a73e5b511e5"


@pytest.mark.parametrize(
    ("form", "file", "session"),
    [
        ("claude", f"claude/2.1.325/projects/-repo-project/{_CLAUDE}.jsonl", f"claude-{_CLAUDE}"),
        ("codex", "codex/0.166.0-exec/sessions", f"codex-{_CODEX}"),
    ],
)
def test_the_lines_of_a_session_that_goes_back_name_the_other_folder_and_are_else_as_they_were(
    pal: Pal, tmp_path: Path, form: str, file: str, session: str
) -> None:
    assert pal("import", str(GOLDEN / file)).exit_code == 0
    before = pal("export", session, "--to", form).stdout_bytes
    after = pal("export", session, "--to", form, "--cwd", str(tmp_path)).stdout_bytes
    assert (_folders(before), _folders(after)) == ({"/repo/project"}, {str(tmp_path)})
    assert _told(after.replace(json.dumps(str(tmp_path)).encode(), b'"/repo/project"')) == _told(before)


def test_a_session_that_moves_stands_where_the_program_looks_for_it(pal: Pal, tmp_path: Path) -> None:
    small(pal.home)
    words = ("export", SMALL, "--to", "claude", "--install")
    pal(*words, "--cwd", str(tmp_path / "one"), **_homes(tmp_path))
    pal(*words, "--cwd", str(tmp_path / "two"), **_homes(tmp_path))
    names = [re.sub(r"[^A-Za-z0-9]", "-", str(tmp_path / name)) for name in ("one", "two")]
    assert sorted(path.parent.name for path in (tmp_path / "claude").rglob("*.jsonl")) == names
    # Without a folder of its own it goes where it stands.
    assert "this file exists" in pal(*words, **_homes(tmp_path)).stderr


def test_a_thread_that_goes_on_from_another_is_installed_with_all_of_it_unless_the_other_is_there(pal: Pal, tmp_path: Path) -> None:
    folder = GOLDEN / "codex" / "0.166.0-app-server" / "sessions"
    source, _, fork = sorted(folder.rglob("*.jsonl"))
    assert pal("import", str(folder)).exit_code == 0
    words = ("export", "codex-01a1ddf6-1c5d-7981-8c3c-46ff52b2b4c8", "--to", "codex", "--install", "--force", "--json")
    alone = Path(msgspec.json.decode(pal(*words, **_homes(tmp_path)).stdout)["path"]).read_bytes()

    assert (b"history_base" in alone, alone.count(b'"user_message"')) == (False, 11)
    beside = tmp_path / "codex" / "sessions" / "2026" / "11" / "15" / source.name
    beside.write_bytes(source.read_bytes())
    pal(*words, **_homes(tmp_path))
    (path,) = (tmp_path / "codex").rglob("*4c8.jsonl")
    # What was cut from the fixture makes its source too short; at its true length the fork needs no more than its own lines.
    assert path.read_bytes() == alone
    beside.write_bytes(source.read_bytes().ljust(330_418, b"\n"))
    pal(*words, **_homes(tmp_path))
    assert path.read_bytes() == fork.read_bytes()


@pytest.mark.states("SG-47")
def test_the_list_of_sessions_of_claude_code_gets_an_entry_and_keeps_the_others(pal: Pal, tmp_path: Path) -> None:
    small(pal.home)
    folder = tmp_path / "claude" / "projects" / "shop"
    folder.mkdir(parents=True)
    other = {"sessionId": "other", "fullPath": "/x/other.jsonl", "starred": True}
    (folder / "sessions-index.json").write_text(json.dumps({"version": 1, "entries": [other], "originalPath": "/home/me/shop", "more": 1}))
    for _ in range(2):
        assert pal("export", SMALL, "--to", "claude", "--install", "--force", **_homes(tmp_path)).exit_code == 0
    (path,) = folder.glob("*.jsonl")
    entry = {
        "sessionId": path.stem,
        "fullPath": str(path),
        "fileMtime": int(path.stat().st_mtime * 1_000),
        "firstPrompt": "What is in a.py?",
        "messageCount": 7,
        "created": "2031-04-01T09:00:02.000Z",
        "modified": "2031-04-01T09:00:12.000Z",
        "gitBranch": "",
        "projectPath": "shop",
        "isSidechain": False,
    }
    listed = json.loads((folder / "sessions-index.json").read_text())
    assert listed == {"version": 1, "originalPath": "/home/me/shop", "entries": [other, entry], "more": 1}


@pytest.mark.states("SG-47")
def test_a_list_of_sessions_that_cannot_be_read_is_left_as_it_is(pal: Pal, tmp_path: Path) -> None:
    small(pal.home)
    index = tmp_path / "claude" / "projects" / "shop" / "sessions-index.json"
    index.parent.mkdir(parents=True)
    index.write_text("{")
    done = pal("export", SMALL, "--to", "claude", "--install", **_homes(tmp_path))
    assert (done.exit_code, index.read_text()) == (0, "{")
    assert f"pal: {index}: the list of sessions is not valid JSON, so it is left as it is; the session is not in it" in done.stderr


@pytest.mark.states("SG-47")
def test_an_entry_is_that_of_claude_code_itself(tmp_path: Path) -> None:
    project = GOLDEN / "claude" / "2.1.19" / "projects" / "-repo-project"
    (_, recorded) = json.loads((project / "sessions-index.json").read_text())["entries"]
    path = tmp_path / f"{recorded['sessionId']}.jsonl"
    path.write_bytes((project / path.name).read_bytes())
    _, content = with_entry(path, "/repo/project", "")
    (entry,) = json.loads(content)["entries"]
    assert entry == {**recorded, "fullPath": str(path), "fileMtime": int(path.stat().st_mtime * 1_000)}
