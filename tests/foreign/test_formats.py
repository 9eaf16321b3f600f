import subprocess
import sys
from pathlib import Path

import pytest
from corpus import CORPUS, GOLDEN, WITHOUT, corpus, golden
from every_case import every_case

from palimpsest.core.errors import BadInput
from palimpsest.core.events import UserSaid
from palimpsest.core.items import Text
from palimpsest.exchange.claude.writer import write_claude
from palimpsest.exchange.formats import FORMATS, format_named
from palimpsest.exchange.transcript import Format, TranscriptSource
from palimpsest.stores.home import Home

OWNERS = {"mini": "swe-agent", "swe": "swe-agent", "copilot-cli": "copilot", "claude-code": "claude", "opencode-export": "opencode"}
SUFFIXES = {".jsonl", ".json", ".traj", ".md", ".db", ".zst"}
FILES = [path for path in golden("**/*") if path.is_file() and path.suffix in SUFFIXES]
REAL = [path for path in corpus("*/*") if path.is_file()]


def formats_of(path: Path) -> tuple[Format, ...]:
    """The formats that find a session in a file or below a folder."""
    return tuple(form for form in FORMATS if any(isinstance(found, TranscriptSource) for found in form.sources(path)))


def owner(path: Path, root: Path) -> str:
    folder = path.relative_to(root).parts[0]
    return OWNERS.get(folder, folder)


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=str(path.relative_to(GOLDEN))[-60:]) for path in FILES],
)
def test_a_golden_file_is_known_by_its_own_format_alone_if_by_any(path: Path) -> None:
    assert [form.name for form in formats_of(path)] in ([], [owner(path, GOLDEN)])


@every_case("form", FORMATS)
def test_a_format_finds_sessions_in_its_own_golden_folders_alone(form: object) -> None:
    found = {owner(folder / "x", GOLDEN) for folder in GOLDEN.iterdir() if form in formats_of(folder)}
    name = getattr(form, "name", "")
    # Tests of these make their files themselves.
    assert found == ({name} if name not in {"copilot", "cursor", "zed"} else set())


@pytest.mark.skipif(not REAL, reason=WITHOUT)
@every_case("path", REAL)
def test_a_real_session_is_known_by_its_own_format_alone(path: Path) -> None:
    assert [form.name for form in formats_of(path)] == [owner(path, CORPUS)]


def test_the_formats_are_asked_in_a_fixed_order_and_found_by_name() -> None:
    names = ["claude", "codex", "opencode", "copilot", "swe-agent", "pi", "openhands", "gemini", "aider"]
    names += ["cline", "cursor", "zed", "moatless", "managed-agents"]
    assert [form.name for form in FORMATS] == names
    assert [format_named(name) for name in names] == list(FORMATS)
    with pytest.raises(BadInput, match="no format is called 'vim'; known are claude, codex"):
        format_named("vim")


def test_a_file_of_one_program_imports_the_reader_of_no_other(tmp_path: Path) -> None:
    (path,) = [each for each in FILES if each.suffix == ".jsonl" and owner(each, GOLDEN) == "claude"][:1]
    script = (
        "import sys; from pathlib import Path\n"
        "from palimpsest.exchange.finding import find_sources\n"
        "from palimpsest.exchange.formats import FORMATS\n"
        "print([source.format for source in find_sources(FORMATS, [Path(sys.argv[1])]).sources])\n"
        "readers = {form.reader.partition(':')[0] for form in FORMATS}\n"
        "print(sorted(name for name in readers if f'palimpsest.exchange.{name}' in sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "['claude']\n['claude.reader']\n"


def test_a_format_is_written_by_its_writer_and_one_that_has_none_says_so() -> None:
    home = Home.in_memory()
    with home.new(cwd="/shop", model="claude-sonnet-4-5") as log:
        log.append(UserSaid((Text("hello"),)))
        written = {form.name: b"".join(form.write(log, home.blobs)) for form in FORMATS if form.writer}
        assert (list(written), all(b"hello" in data for data in written.values())) == (["claude", "codex", "opencode"], True)
        assert written["claude"] == b"".join(write_claude(log, home.blobs))
        with pytest.raises(BadInput, match="a pi session can only be read"):
            format_named("pi").write(log, home.blobs)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n",
        b"{}",
        b"[]",
        b"null\n",
        b"\x00\xff",
        b'{"type": "session"}\n',
        b'{"messages": []}',
        b'[{"role": "user", "content": "x"}]',
        b'{"type": "user"}\n',
        b'{"id": 1, "timestamp": "x"}',
        b"[" * 50_000,
    ],
)
@pytest.mark.parametrize(
    "name", ["x.jsonl", "x.json", "x.traj", "x.traj.json", "0.json", ".aider.chat.history.md", "rollout-x.jsonl", "opencode.db"]
)
def test_what_is_of_no_format_is_known_by_none(data: bytes, name: str, tmp_path: Path) -> None:
    path = tmp_path / "events" / name
    path.parent.mkdir()
    path.write_bytes(data)
    assert formats_of(path) == ()


def test_folders_in_circles_pipes_and_missing_paths_are_no_sessions(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "self.jsonl").symlink_to(tmp_path / "self.jsonl")
    assert formats_of(tmp_path) == ()
    assert formats_of(tmp_path / "self.jsonl") == ()
    assert formats_of(tmp_path / "nowhere.jsonl") == ()
