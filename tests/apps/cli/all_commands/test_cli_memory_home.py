"""Every command on a home in memory: it answers as on a home in a folder, so that nothing above the stores assumes files."""

import re
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from pal_runs import BEGAN, LONG, SMALL, edited, long

from pal.cli.main import COMMANDS, cli
from palimpsest.stores.home import FolderHome, Home, MemoryHome
from palimpsest.stores.in_memory import FixedClock

CLAUDE = Path(__file__).parents[3] / "golden" / "foreign" / "claude" / "2.1.325" / "projects"
# The ids of a fork and of a new session are made at random, a home tells `doctor` and `init` how it is kept, `diff` needs
# a folder, `jobs` lists that of the index only where there is one, notes are kept in folders only, `chat` needs a terminal and `acp` an
# editor, and the last three touch no home or make their own.
OTHERWISE = {
    *("fork", "ask", "doctor", "init", "diff", "jobs", "memory", "chat", "gateway", "wrap"),
    *(
        "acp",
        "mcp",
        "plug",
        "unplug",
        "completion",
        "demo",
        "lab",
        "bench",
    ),
}
# Each line is run in both homes, in this order: those that change something come after those that look.
LINES: tuple[tuple[str, ...], ...] = (
    ("sessions",),
    ("sessions", "--json"),
    ("show", SMALL),
    ("show", SMALL, "--request", "2"),
    ("show", LONG, "--json"),
    ("context", SMALL, "--json"),
    ("audit", SMALL, "--json"),
    ("why", SMALL, "timeout"),
    ("secrets", "--all"),
    ("search", "timeout", "--json"),
    ("search", "timeout", "--session", SMALL),
    ("agents", SMALL, "--json"),
    ("hooks", SMALL, "--json"),
    ("trust", "--json"),
    ("mcp-servers", "--json"),
    ("cards", "--json"),
    ("config", "--json"),
    ("agents", SMALL, "--json"),
    ("hooks", "--json"),
    ("hooks", SMALL, "--json"),
    ("hooks", SMALL, "--json"),
    ("hooks",),
    ("trust", "--json"),
    ("mcp-servers", "--json"),
    ("compact", LONG, "--preview", "--json"),
    ("pin", SMALL, "2.0", "--json"),
    ("unpin", SMALL, "2.0"),
    ("undo", SMALL, "--dry-run"),
    ("undo", SMALL, "--json"),
    ("restore", SMALL, "8.0"),
    ("compact", LONG, "--no-model", "--json"),
    ("audit", LONG),
    ("rewind", SMALL, "-1", "--json"),
    ("show", SMALL, "--at", "5"),
    ("export", SMALL, "--to", "claude", "--at", "8"),
    ("export", SMALL, "--to", "codex"),
    ("export", SMALL, "--to", "messages", "--pretty"),
    ("export", LONG, "--to", "markdown"),
    ("export", LONG, "--to", "html"),
    ("replay", SMALL, "--profiles", "palimpsest,none", "--json"),
    ("verify", "--all", "--json"),
    ("verify", SMALL),
    ("index", "--rebuild"),
    ("import", str(CLAUDE), "--dry-run", "--json"),
    ("import", str(CLAUDE), "--json"),
    ("import", str(CLAUDE), "--json"),
    ("sessions", "--all", "--json"),
    ("show", "nothing-of-the-kind"),
    ("delete", SMALL),
    ("delete", SMALL, "--yes"),
    ("sessions",),
    ("show", "last", "--json"),
    ("verify", "--all"),
)


def run(home: Home, *words: str) -> Result:
    return CliRunner().invoke(cli, list(words), env={"COLUMNS": "80", "PAL_OFFLINE": "1"}, catch_exceptions=False, obj=home)


def same_words(text: str, home: Home) -> str:
    """The output without what its home is called."""
    if home.local_folder is not None:
        text = re.sub(rf"{re.escape(str(home.store.name))}/([\w.-]+?)\.jsonl", r"memory:\1", text)
        text = text.replace(home.store.name, "memory").replace(home.name, "memory")
    # Only a folder has side files, which are deleted with a session.
    return re.sub(r"\([\d,]+ bytes\)|[\d,]+ bytes freed", "… bytes", text)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[int, str, str]]]:
    """Exit code, output and errors of each line in each home."""
    homes: dict[str, Home] = {
        "folder": FolderHome(tmp_path_factory.mktemp("home"), FixedClock(BEGAN + 3_600_000, 1_000)),
        "memory": MemoryHome(FixedClock(BEGAN + 3_600_000, 1_000)),
    }
    found: dict[str, list[tuple[int, str, str]]] = {}
    for name, home in homes.items():
        edited(home)
        long(home, events=300)
        results = [run(home, *words) for words in LINES]
        found[name] = [(each.exit_code, same_words(each.stdout, home), same_words(each.stderr, home)) for each in results]
    return found


@pytest.mark.parametrize("number", range(len(LINES)), ids=lambda number: " ".join(LINES[number]))
def test_a_command_answers_the_same_in_memory_as_in_a_folder(answers: dict[str, list[tuple[int, str, str]]], number: int) -> None:
    assert answers["memory"][number] == answers["folder"][number]


def test_every_command_that_uses_a_home_is_among_them() -> None:
    assert {words[0] for words in LINES} | OTHERWISE == set(COMMANDS)


def test_a_fork_is_made_in_memory() -> None:
    home = MemoryHome()
    edited(home)
    result = run(home, "fork", SMALL, "--at", "5")
    assert sorted(home.store.sessions()) == sorted([SMALL, result.stdout.strip()])
    assert run(home, "delete", SMALL, "--yes").exit_code == 2


def test_a_home_in_memory_has_no_configuration_file() -> None:
    result = run(MemoryHome(), "init")
    assert (result.exit_code, result.stderr) == (2, "pal: memory: a home in memory has no configuration file\n")


def test_doctor_finds_a_home_in_memory_in_order() -> None:
    home = MemoryHome()
    edited(home)
    checks = {
        check["name"]: (check["state"], check["message"]) for check in msgspec.json.decode(run(home, "doctor", "--json").stdout)["checks"]
    }
    assert {name: checks[name] for name in ("home", "disk", "index", "locks", "remains", "logs", "secrets")} == {
        "home": ("ok", "memory, 1 session"),
        "disk": ("ok", "not needed"),
        "index": ("ok", "does not exist yet, created when needed"),
        "locks": ("ok", "not needed"),
        "remains": ("ok", "no files were left by crashes or repairs"),
        "logs": ("ok", "1 checked, all begin and end correctly"),
        "secrets": ("ok", "none known in imported sessions"),
    }


def test_a_damaged_log_is_repaired_in_memory() -> None:
    home = MemoryHome()
    edited(home)
    lines = home.store.open(SMALL)
    home.store.replace(SMALL, lines.read(0, lines.size).replace(b"Be brief.", b"Be broken"))
    assert run(home, "verify", SMALL).exit_code == 1
    result = run(home, "verify", SMALL, "--repair")
    assert (result.exit_code, f"the damaged file is kept as memory:{SMALL}.damaged-1" in result.stdout) == (0, True)
