import os
import pty
import shutil
import signal
import sqlite3
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from corpus import GOLDEN, WITHOUT, corpus
from opencode_session import Talk
from pal_runs import Pal

from palimpsest.core.log import Log
from palimpsest.core.text import iso_time
from palimpsest.stores.home import FolderHome, SystemClock

NUMBERS = ("events", "user_messages", "calls", "results", "folds", "masks", "bad_lines")
TOKEN = "ghp_" + "a1B2" * 9
PAL = [sys.executable, "-m", "pal.cli"]
MANAGED = GOLDEN / "managed-agents" / "session.jsonl"
CLAUDE = GOLDEN / "claude" / "2.1.325" / "projects"
SESSION = "d2b453cc-7e13-4d39-b892-57dac4f124e1"


def state(folder: Path) -> dict[str, tuple[str, int]]:
    """Of every file its digest and when it was changed, and of every folder too."""
    found = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        digest = sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(folder))] = (digest, path.stat().st_mtime_ns)
    return found


def logs(pal: Pal) -> dict[str, str]:
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in (pal.home.folder / "sessions").glob("*.jsonl")}


@pytest.fixture
def projects(tmp_path: Path) -> Path:
    """Sessions of Claude Code where that program keeps them, in a home folder of somebody."""
    shutil.copytree(CLAUDE, tmp_path / "somebody" / ".claude" / "projects")
    return tmp_path / "somebody" / ".claude" / "projects"


def test_the_json_has_counts_in_all_by_format_and_by_file(pal: Pal) -> None:
    done = pal.json("import", str(CLAUDE))

    assert list(done)[:10] == ["sessions", *NUMBERS, "secrets", "skipped"]
    assert [list(file)[:3] for file in done["files"]] == [["path", "format", "session"]] * 3
    for name in NUMBERS:
        assert done[name] == sum(file[name] for file in done["files"]) == done["formats"]["claude"][name]
    assert (done["sessions"], done["skipped"], done["bad_lines"]) == (3, [], 0)
    assert min(done[name] for name in ("events", "user_messages", "calls", "results", "folds")) > 0
    assert {file["session"] for file in done["files"]} == {row["id"] for row in pal.json("sessions", "--all")}
    assert [file["path"] for file in done["files"]] == sorted(str(path) for path in CLAUDE.rglob("*.jsonl"))


def test_a_program_is_found_where_it_keeps_its_sessions(pal: Pal, projects: Path) -> None:
    home = str(projects.parents[1])
    named = pal("import", "claude", "--json", HOME=home, CLAUDE_CONFIG_DIR="")
    again = pal("import", "--json", HOME=home, CLAUDE_CONFIG_DIR="", XDG_DATA_HOME="", CODEX_HOME="")

    assert (named.exit_code, again.exit_code) == (0, 0), named.output + again.output
    assert msgspec.json.decode(named.stdout)["sessions"] == msgspec.json.decode(again.stdout)["sessions"] == 3
    assert msgspec.json.decode(again.stdout)["events"] == 0


def test_everything_that_is_golden_comes_in_and_a_second_time_changes_nothing(pal: Pal) -> None:
    first = pal("import", str(GOLDEN), "--json")
    before = logs(pal)
    (pal.home.folder / "imports.json").unlink()
    second = pal("import", str(GOLDEN), "--json")

    counted = msgspec.json.decode(first.stdout)
    assert {"claude", "codex", "opencode"} <= counted["formats"].keys()
    assert msgspec.json.decode(second.stdout)["events"] == 0
    assert logs(pal) == before
    assert all(verdict["ok"] for verdict in [pal.json("verify", session.removesuffix(".jsonl")) for session in before])


def test_nothing_is_ever_written_into_the_source(pal: Pal, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(GOLDEN, source)
    for path in [source, *source.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = state(source)
    pal("import", str(source))
    pal("import", str(source), "--redact")

    assert state(source) == before
    for path in [source, *source.rglob("*")]:
        path.chmod(0o755)


def test_only_what_grew_is_new(pal: Pal, projects: Path) -> None:
    file = projects / "-repo-project" / f"{SESSION}.jsonl"
    whole = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(whole[:-3]) + whole[-3][:40])
    first = pal.json("import", str(projects))
    file.write_bytes(b"".join(whole))
    second = pal.json("import", str(projects))

    assert [entry["events"] > 0 for entry in second["files"]] == [str(file) == entry["path"] for entry in second["files"]]
    at_once = Pal(pal.home.folder.parent / "other")
    assert at_once.json("import", str(projects))["events"] == first["events"] + second["events"]
    assert logs(at_once) == logs(pal)


def test_a_dry_run_counts_the_same_and_writes_nothing(pal: Pal, projects: Path) -> None:
    dry = pal.json("import", str(projects), "--dry-run")
    assert not pal.home.folder.exists()

    assert pal("import", str(projects), "--dry-run").stdout.endswith("nothing was written (--dry-run)\n")
    done = pal.json("import", str(projects))
    assert {name: dry[name] for name in (*NUMBERS, "sessions")} == {name: done[name] for name in (*NUMBERS, "sessions")}
    assert (dry["dry_run"], done["dry_run"]) == (True, False)
    assert pal("import", str(projects), "--dry-run").stdout == "nothing new in 3 sessions\n"


def test_a_word_that_is_neither_a_program_nor_a_path_is_a_mistake(pal: Pal) -> None:
    result = pal("import", "cluade")

    assert result.exit_code == 2
    assert result.stderr.startswith(
        "pal: cluade: there is no such file, and no program of that name; known programs are claude, codex, opencode"
    )
    assert not pal.home.folder.exists()
    assert pal.json("import", "cluade", code=2)["error"]["where"] == "cluade"


def test_what_cannot_be_read_is_one_line_each_and_the_rest_comes_in(pal: Pal, projects: Path) -> None:
    folder = projects / "-repo-project"
    (folder / "empty.jsonl").touch()
    (folder / "garbage.jsonl").write_bytes(b"\x00\xff garbage\n" * 3)
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe.jsonl")

    result = pal("import", str(projects), "--json")

    done = msgspec.json.decode(result.stdout)
    assert result.exit_code == 1
    assert [Path(skip["path"]).name for skip in done["skipped"]] == ["empty.jsonl", "garbage.jsonl", "loop", "pipe.jsonl"]
    assert sorted(result.stderr.splitlines()) == sorted(f"pal: {skip['path']}: {skip['why']}" for skip in done["skipped"])
    assert done["sessions"] == 3


def test_what_may_not_be_read_is_one_line_each(pal: Pal, projects: Path) -> None:
    folder = projects / "-repo-project"
    (folder / f"{SESSION}.jsonl").chmod(0)
    (projects / "closed").mkdir(mode=0)
    # Root without the right to pass over file modes is like anybody else.
    without = ("--bounding-set", "-dac_override,-dac_read_search", "--inh-caps", "-dac_override,-dac_read_search")
    prefix = ("setpriv", *without) if os.geteuid() == 0 else ()
    settings = {**os.environ, "PAL_HOME": str(pal.home.folder)}
    done = subprocess.run([*prefix, *PAL, "import", str(projects), "--json"], capture_output=True, env=settings, check=False, timeout=120)
    (projects / "closed").chmod(0o755)

    reported = msgspec.json.decode(done.stdout)
    assert done.returncode == 1
    assert [Path(skip["path"]).name for skip in reported["skipped"]] == [f"{SESSION}.jsonl", "closed"]
    assert all("permission denied" in skip["why"].lower() for skip in reported["skipped"])
    assert reported["sessions"] == 2


def test_bad_lines_are_counted_and_named_ten_on_the_screen_and_all_in_json(pal: Pal, projects: Path) -> None:
    file = projects / "-repo-project" / f"{SESSION}.jsonl"
    with file.open("ab") as out:
        out.write(b"not json\n" * 12)

    shown = pal("import", str(file))
    again = Pal(pal.home.folder.parent / "other").json("import", str(file), code=1)

    assert shown.exit_code == 1
    assert len([line for line in shown.stderr.splitlines() if f"{file}:" in line]) == 11
    assert shown.stderr.splitlines()[-1].endswith("… and 2 more bad lines; --json has all")
    assert again["bad_lines"] == 12
    assert len({bad["where"] for bad in again["files"][0]["bad"]}) == 12


def test_secrets_are_shown_by_the_doctor_and_replaced_on_demand(pal: Pal, projects: Path) -> None:
    file = projects / "-repo-project" / f"{SESSION}.jsonl"
    file.write_bytes(file.read_bytes().replace(b"RESUMED-MSG", f"RESUMED-MSG {TOKEN}".encode()))

    shown = pal("import", str(file))
    secrets = next(check for check in pal.json("doctor", code=1)["checks"] if check["name"] == "secrets")
    other = Pal(pal.home.folder.parent / "other")
    redacted = other.json("import", str(file), "--redact")

    assert "secrets (github 1)" in shown.stdout
    late = pal("import", str(file), "--redact")
    assert late.stdout == "nothing new in 1 sessions\n"
    assert f"already imported with its secrets; run `pal delete claude-{SESSION}` first" in late.stderr
    assert secrets["state"] == "warn"
    assert f"claude-{SESSION} (1)" in secrets["message"]
    assert redacted["secrets"] == {}
    assert TOKEN.encode() not in (other.home.folder / "sessions" / f"claude-{SESSION}.jsonl").read_bytes()
    assert all(check["state"] == "ok" for check in other.json("doctor")["checks"])


def _factors(pal: Pal) -> dict[str, float]:
    found: dict[str, float] = {}
    for session in pal.home.store.sessions():
        with Log.open(pal.home.store, session, SystemClock()) as log:
            calibration = log.ledger.calibration
        found |= {f"{session} {model}": calibration.factor(model) for model in calibration.models}
    return found


def test_an_import_teaches_how_the_model_counts(pal: Pal) -> None:
    pal.json("import", str(CLAUDE / "-repo-project" / f"{SESSION}.jsonl"))

    assert _factors(pal) == {f"claude-{SESSION} claude-sonnet-4-6": pytest.approx(1.33, rel=0.1)}


@pytest.mark.skipif(not corpus("*"), reason=WITHOUT)
def test_real_sessions_teach_what_is_known_of_their_models(pal: Pal) -> None:
    pal.json("import", *(str(path) for path in [*corpus("codex/*agentv*019ed8*"), *corpus("claude-code/Moonshot*")]))

    found = _factors(pal)
    assert len(found) == 5
    assert all(0.9 < factor < 1.1 for name, factor in found.items() if "gpt" in name)
    assert all(1.1 < factor < 1.5 for name, factor in found.items() if "claude" in name.split()[1])


def _in_terminal(words: list[str], **env: str) -> tuple[int, str, Any]:
    """Run the real program with a terminal for its progress alone."""
    near, far = pty.openpty()
    settings = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "COLUMNS": "80", **env}
    with subprocess.Popen([*PAL, *words], stdin=far, stdout=subprocess.PIPE, stderr=far, env=settings, start_new_session=True) as running:
        os.close(far)
        shown = b""
        while True:
            try:
                piece = os.read(near, 65536)
            except OSError:
                break
            if not piece:
                break
            shown += piece
        said = running.stdout.read() if running.stdout else b""
    os.close(near)
    return running.returncode, shown.decode(), said


def test_progress_goes_to_a_terminal_and_the_value_stays_alone(pal: Pal) -> None:
    code, shown, said = _in_terminal(["import", str(CLAUDE), "--json"], PAL_HOME=str(pal.home.folder))

    assert code == 0
    assert "3/3" in shown
    assert "events/s" in shown
    assert msgspec.json.decode(said)["sessions"] == 3


_STOPPED = """
import signal
from pal.cli import imports
from pal.cli.main import cli
take = imports.ImportRun.take
class Stopping(imports.ImportRun):
    def take(self, form, source):
        signal.raise_signal(signal.SIGINT)
        take(self, form, source)
imports.ImportRun = Stopping
cli.main()
"""


def test_an_interrupt_says_how_far_it_came(pal: Pal) -> None:
    settings = {**os.environ, "PAL_HOME": str(pal.home.folder)}
    stopped = subprocess.run([sys.executable, "-c", _STOPPED, "import", str(CLAUDE)], capture_output=True, env=settings, check=False)

    assert stopped.returncode == 128 + signal.SIGINT
    assert stopped.stderr.decode() == "pal: interrupted after 0 of 3 files; what was read is kept, and `pal import` continues from there\n"
    assert pal.json("import", str(CLAUDE))["sessions"] == 3


def test_a_request_of_another_program_is_shown_as_far_as_its_file_tells(pal: Pal) -> None:
    pal("import", str(GOLDEN / "claude" / "2.1.325" / "projects"))
    whole = pal("show", "claude-69901b92", "--request", "5")
    assert (whole.exit_code, whole.stderr) == (0, "what claude-code showed its model at event 53, as far as its file shows\n")


def test_what_the_file_of_another_program_does_not_hold_is_said(pal: Pal) -> None:
    pal("import", str(GOLDEN / "claude" / "2.1.19" / "projects"))
    shown = pal("show", "claude-c5073ae2", "--request", "1")
    assert shown.exit_code == 0
    assert shown.stderr.endswith("as far as its file shows; its file lacks the instructions and the tools\n")


def test_an_import_that_finds_nothing_says_where_it_looked(pal: Pal, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    named = pal("import", "pi", HOME=str(tmp_path / "somebody"))
    given = pal("import", str(tmp_path), "--verbose")
    done = pal.json("import", str(tmp_path), "--verbose")

    assert (named.exit_code, given.exit_code) == (0, 0)
    assert named.stdout.splitlines()[:2] == [
        "no sessions found; looked in",
        f"  pi {tmp_path}/somebody/.pi/agent/sessions (not there)",
    ]
    assert given.stdout.splitlines()[1] == f"  {tmp_path}"
    assert given.stderr == f"pal: {tmp_path}/notes.txt: text of no known program\n"
    assert (done["searched"], done["ignored"]) == ([str(tmp_path)], [{"path": f"{tmp_path}/notes.txt", "why": "text of no known program"}])
    assert "ignored" not in pal.json("import", str(tmp_path))


def test_a_program_that_was_never_used_is_no_finding(pal: Pal, tmp_path: Path) -> None:
    path = tmp_path / ".config" / "Cursor" / "User" / "globalStorage" / "state.vscdb"
    path.parent.mkdir(parents=True)
    sqlite3.connect(path).executescript("CREATE TABLE cursorDiskKV (key TEXT, value BLOB)").close()
    done = pal("import", "cursor", HOME=str(tmp_path), XDG_CONFIG_HOME="")

    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines()[:2] == ["no sessions found; looked in", f"  cursor {path}"]


def test_one_deep_file_does_not_stop_the_import_of_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    shutil.copy(CLAUDE / "-repo-project" / f"{SESSION}.jsonl", folder)
    (folder / "a.jsonl").write_text('{"a":' * 5_000 + "1" + "}" * 5_000 + "\n")
    (folder / "b.json").write_text("[" * 100_000)
    variables = {**os.environ, "PAL_HOME": str(tmp_path / "home")}
    done = subprocess.run([*PAL, "import", str(folder), "--json"], capture_output=True, text=True, env=variables, check=False, timeout=60)

    assert "Traceback" not in done.stderr
    assert done.returncode == 1
    found = msgspec.json.decode(done.stdout)
    assert [file["session"] for file in found["files"]] == [f"claude-{SESSION}"]
    assert [Path(each["path"]).name for each in found["skipped"]] == ["a.jsonl"]


def test_a_damaged_database_of_opencode_hides_no_session_beside_or_below_it(pal: Pal, tmp_path: Path) -> None:
    database = GOLDEN / "opencode" / "opencode.db"
    folder = tmp_path / "saved"
    (folder / "older").mkdir(parents=True)
    (folder / "opencode.db").write_bytes(database.read_bytes()[:200_000])
    talk = Talk("ses_beside")
    talk.user("one")
    talk.export(folder)
    shutil.copy(database, folder / "older")
    done = pal.json("import", str(folder), code=1)

    assert [Path(each["path"]).name for each in done["skipped"]] == ["opencode.db"]
    names = {Path(file["path"]).relative_to(folder).parts[0] for file in done["files"]}
    assert names == {"older", *(path.name for path in folder.glob("*.json"))}
    assert "opencode-ses_beside" in {file["session"] for file in done["files"]}


def test_a_compressed_file_of_tiny_lines_is_refused_and_leaves_no_session(pal: Pal, tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    thread = "11111111-2222-3333-4444-555555555555"
    meta = b'{"timestamp":"2026-01-01T00:00:00Z","type":"session_meta","payload":{"id":"%s"}}\n' % thread.encode()
    name = f"rollout-2026-01-01T00-00-00-{thread}.jsonl.zst"
    (tmp_path / name).write_bytes(zstandard.compress(meta + b"{}\n" * 5_000_000))
    done = pal.json("import", str(tmp_path / name), code=1)

    assert [each["why"] for each in done["skipped"]] == [done["skipped"][0]["why"]]
    assert "lines" in done["skipped"][0]["why"]
    assert pal.json("sessions", "--all") == []


def test_the_times_of_aider_are_those_of_the_machine(tmp_path: Path) -> None:
    for zone, time in (("UTC", "10:00:00"), ("Asia/Tokyo", "01:00:00")):
        variables = {**os.environ, "PAL_HOME": str(tmp_path / zone), "TZ": zone}
        subprocess.run(
            [*PAL, "import", str(GOLDEN / "aider" / "project"), "-v"], capture_output=True, env=variables, check=True, timeout=60
        )
        with FolderHome(tmp_path / zone).open("aider-project-2026-05-04T10-00-00", write=False) as log:
            assert iso_time(log.event(0).at) == f"2026-05-04T{time}.000Z"


@pytest.mark.states("PV-81")
def test_events_of_managed_agents_are_imported_priced_audited_and_replayed_as_any_transcript(pal: Pal, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(MANAGED.read_text(encoding="utf-8").replace("ticket 12", TOKEN), encoding="utf-8")
    replayed = pal.json("replay", str(path), "--profiles", "none")
    assert [session["profiles"]["none"]["calls"] for session in replayed["sessions"]] == [4]
    assert pal("import", str(path), "--redact").exit_code == 0
    (row,) = pal.json("sessions")
    assert (row["origin"], row["tokens"], row["turns"], row["title"]) == ("managed-agents", 7_390, 2, "The sum is right")
    # Read 4,200, written 960 and sent 2,030 tokens, replied 200, in millionths of the price of the model.
    # What the thread below it used is in events of its own.
    assert row["cost_usd"] is None
    assert row["own_usd"] == pytest.approx((4_200 * 0.3 + 960 * 3.75 + 2_030 * 3 + 200 * 15) / 1e6)
    exported = pal("export", "last", "--to", "markdown", "--full").stdout
    assert (TOKEN in exported, "REDACTED:github" in exported) == (False, True)
    assert pal("audit", "last").exit_code == 0


@pytest.mark.states("PV-81")
def test_the_service_of_managed_agents_keeps_no_folder_here_so_its_name_alone_is_refused(pal: Pal) -> None:
    refused = pal("import", "managed-agents")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr == "pal: managed-agents: its service keeps the sessions; save their events, then `pal import FILE`\n"
