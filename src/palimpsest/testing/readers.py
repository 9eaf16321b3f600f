"""The contract of readers of other programs' sessions."""

from pathlib import Path
from tempfile import TemporaryDirectory

from palimpsest.core.log.log import Log
from palimpsest.core.log.verify import verify
from palimpsest.foreign.reading.importing import Imported, import_session
from palimpsest.foreign.reading.transcript import Format, ReadProblem, TranscriptSource
from palimpsest.stores.ephemeral import FixedClock, MemoryBlobs, MemorySessions
from palimpsest.stores.files import write_atomically
from palimpsest.testing.laws import require, require_equal
from palimpsest.wire.encode import encode
from palimpsest.wire.models.cards import card
from palimpsest.wire.request import DEFAULTS
from palimpsest.wire.rules.check import check_request

_WIRES = ("claude-sonnet-4-5", "gpt-5", "openai-compatible/any")


class ReaderContract:
    """The laws of a reader: define `make`, and `write_session`, which writes one healthy session and returns its file."""

    def make(self) -> Format:
        """Return the format."""
        raise NotImplementedError

    def write_session(self, folder: Path) -> Path:
        """Write a session of the other program below a folder and return its main file."""
        raise NotImplementedError

    def test_a_session_is_found_and_read_into_a_log_that_verifies(self) -> None:
        """It has events and no problems, its chain verifies, and three providers take its request."""
        with TemporaryDirectory() as name:
            store, blobs, done = self._imported(self.write_session(Path(name)))
        require(done.counts.events > 0 and not done.problems, f"{done.counts.events} events, problems {done.problems!r}")
        require(verify(store, done.session, blobs).ok, "the log does not verify")
        with Log.open(store, done.session, FixedClock(1)) as log:
            for model in map(card, _WIRES):
                body = encode(log.view, model, (), DEFAULTS, blobs.get).body
                require_equal(check_request(model.wire, body), (), f"what {model.wire} rejects")

    def test_a_second_import_adds_nothing(self) -> None:
        """Read again from the start or from its position, an unchanged file brings no new event."""
        with TemporaryDirectory() as name:
            path = self.write_session(Path(name))
            store, blobs, done = self._imported(path)
            for position in (None, done.position):
                again = import_session(self.make(), self._source(path), store, blobs, FixedClock(2), position=position, since=done.tip)
                require_equal((again.counts.events, again.session), (0, done.session), "events of a second import, and its session")

    def test_a_file_that_ends_early_is_read_as_far_as_it_goes(self) -> None:
        """Whatever is missing at the end, there is no other error than a listed problem, and the log verifies."""
        with TemporaryDirectory() as name:
            path = self.write_session(Path(name))
            data = path.read_bytes()
            for share in (0.0, 0.3, 0.6, 0.95):
                write_atomically(path, [data[: int(len(data) * share)]], replace=True, sync=False)
                for source in self.make().sources(path):
                    if isinstance(source, ReadProblem):
                        continue
                    store, blobs = MemorySessions(), MemoryBlobs()
                    done = import_session(self.make(), source, store, blobs, FixedClock(1))
                    require(done.tip < 0 or verify(store, done.session, blobs).ok, f"the log of {share:.0%} of the file does not verify")

    def test_files_of_other_programs_are_left_alone(self) -> None:
        """A text, an empty file and a folder without sessions give no session."""
        with TemporaryDirectory() as name:
            folder = Path(name)
            for file, text in (("notes.txt", "Some notes.\n"), ("empty", ""), ("package.json", '{"name": "shop"}\n')):
                write_atomically(folder / file, [text.encode()])
            found = [each for each in self.make().sources(folder) if isinstance(each, TranscriptSource)]
            require_equal(found, [], "sessions in a folder without any")

    def _source(self, path: Path) -> TranscriptSource:
        found = [each for each in self.make().sources(path) if isinstance(each, TranscriptSource)]
        require_equal(len(found), 1, f"sessions in {path.name}")
        return found[0]

    def _imported(self, path: Path) -> tuple[MemorySessions, MemoryBlobs, Imported]:
        store, blobs = MemorySessions(), MemoryBlobs()
        return store, blobs, import_session(self.make(), self._source(path), store, blobs, FixedClock(1))
