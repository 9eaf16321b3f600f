"""Contracts of session stores, blob stores, providers and transcript readers, whose broken laws raise `ContractBroken`."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from palimpsest.core.deltas import Delta, PartialReply, TextDelta
from palimpsest.core.errors import BadInput, Locked, MissingBlob, PalimpsestError, ReadOnly, StoreError
from palimpsest.core.events import ModelReplied, SessionOpened, Titled, UserSaid
from palimpsest.core.items import Text, ToolCall, text_of
from palimpsest.core.log import Log
from palimpsest.core.ports import BlobStore, LogFile, Provider, Sendable, SessionStore
from palimpsest.core.ports import closing as providers_closing
from palimpsest.core.verify import verify
from palimpsest.exchange.importing import Imported, import_session
from palimpsest.exchange.transcript import Format, ReadProblem, TranscriptSource
from palimpsest.stores.files import write_atomically
from palimpsest.stores.home import Home
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions
from palimpsest.wire.encode import encode
from palimpsest.wire.models import CARDS, ModelCard, card
from palimpsest.wire.request import DEFAULTS
from palimpsest.wire.wires import check_request


class ContractBroken(AssertionError):
    """A law does not hold; the message says what was found."""


def require(holds: object, found: str) -> None:
    """Raise `ContractBroken` with what was found unless `holds` is true. Unlike `assert`, it is not removed by `python -O`."""
    if not holds:
        raise ContractBroken(found)


def require_equal(found: object, expected: object, what: str) -> None:
    """Raise `ContractBroken` unless both are equal."""
    require(found == expected, f"{what}: found {found!r}, expected {expected!r}")


def require_error(kind: type[PalimpsestError], ask: Callable[[], object], what: str) -> None:
    """Raise `ContractBroken` unless the call raises an error of that type."""
    try:
        found = ask()
    except kind:
        return
    except PalimpsestError as error:
        raise ContractBroken(f"{what}: raised {type(error).__name__}, expected {kind.__name__}") from error
    raise ContractBroken(f"{what}: returned {found!r}, expected {kind.__name__}")


def check(contract: object) -> tuple[str, ...]:
    """Run all laws of a contract without pytest and return their names. Raises `ContractBroken` for the first that does not hold."""
    names = tuple(name for name in dir(contract) if name.startswith("test_"))
    for name in names:
        getattr(contract, name)()
    return names


_NO_IDS = ("../s", "a/b", "", ".hidden", "x" * 129, "a\0b", "a b", "a\n")
_NO_ADDRESSES = ("", "../../etc/passwd", "ab", "/" * 64, "A" * 64)


class StoreContract:
    """The laws of a session store: define `make`, which returns a new, empty store each time."""

    def make(self) -> SessionStore:
        """Return an empty store."""
        raise NotImplementedError

    def test_a_line_is_found_where_append_said(self) -> None:
        """`append` returns the offset of what it wrote, and `read` and `chunks` give these bytes back."""
        with closing(self.make().create("one", b"first\n")) as lines:
            starts = [lines.append(line) for line in (b"second\nthird\n", b"fourth\n")]
            lines.sync()
            require_equal((starts, lines.size), ([6, 19], 26), "offsets and size")
            require_equal((lines.read(6, 7), lines.read(26, 5)), (b"second\n", b""), "bytes at an offset and at the end")
            require_equal(_all(lines), b"first\nsecond\nthird\nfourth\n", "all chunks")
            require(all(data.endswith(b"\n") for _, data in lines.chunks()), "a chunk does not end at a line end")

    def test_a_large_line_comes_in_one_piece(self) -> None:
        """A line is never split between two chunks."""
        large = b"x" * 3_000_000 + b"\n"
        with closing(self.make().create("one", b"before\n")) as lines:
            lines.append(large)
            lines.append(b"after\n")
            require(any(large in data for _, data in lines.chunks()), "a line of 3 MB is split")
            require_equal(_all(lines), b"before\n" + large + b"after\n", "all chunks")

    def test_what_is_synced_and_closed_is_read_by_the_next(self) -> None:
        """Lines and the newest checkpoint outlive the one who wrote them; a checkpoint belongs to its log alone."""
        store = self.make()
        for name in ("one", "two"):
            with closing(store.create(name, b"first\n")) as lines:
                lines.append(b"second\n")
                lines.save_checkpoint(b"old")
                lines.save_checkpoint(name.encode())
                lines.sync()
        for name in ("one", "two"):
            with closing(store.open(name)) as reader:
                require_equal((_all(reader), reader.load_checkpoint()), (b"first\nsecond\n", name.encode()), "lines and checkpoint")

    def test_one_writes_and_many_read(self) -> None:
        """A second writer is refused with `Locked`; readers are free, see what was there when they came, and cannot write."""
        store = self.make()
        with closing(store.create("one", b"first\n")) as writer:
            for _ in range(2):
                require_error(Locked, lambda: store.open("one", write=True), "a second writer")
            with closing(store.open("one")) as reader:
                writer.append(b"second\n")
                require_equal((_all(reader), reader.size), (b"first\n", 6), "what an earlier reader sees")
                require_error(ReadOnly, lambda: reader.append(b"x\n"), "a reader that writes")
            require_error(Locked, lambda: store.open("one", write=True), "a writer after a reader has closed")
        store.open("one", write=True).close()

    def test_after_closing_lines_are_out_of_reach(self) -> None:
        """Sizes are still known; `sync`, `save_checkpoint` and `close` do nothing; all else raises `StoreError`."""
        store = self.make()
        lines = store.create("one", b"first\n")
        lines.close()
        lines.close()
        lines.sync()
        lines.save_checkpoint(b"too late")
        require_equal(lines.size, 6, "the size after closing")
        for ask in (lambda: lines.read(0, 1), lambda: list(lines.chunks()), lambda: lines.append(b"x\n")):
            require_error(StoreError, ask, "use after closing")
        with closing(store.open("one")) as reader:
            require_equal((_all(reader), reader.load_checkpoint()), (b"first\n", None), "what a closed writer left")

    def test_ids_are_plain_names_and_listed_in_order(self) -> None:
        """Taken, unknown and strange ids raise `BadInput`; the others are listed in order."""
        store = self.make()
        for name in ("two", "one", "one.1", "One"):
            store.create(name).close()
        require_equal(list(store.sessions()), ["One", "one", "one.1", "two"], "the sessions")
        require_error(BadInput, lambda: store.create("one"), "a taken id")
        require_error(BadInput, lambda: store.open("three"), "an unknown id")
        for name in _NO_IDS:
            require_error(BadInput, partial(store.create, name), f"the id {name!r}")
            require_error(BadInput, partial(store.open, name), f"the id {name!r}")

    def test_a_session_and_its_fork_are_read_back_as_they_were(self) -> None:
        """A log on this store resumes to the same view, also through a fork."""
        store, clock = self.make(), FixedClock(1_000, 1)
        with Log.create(store, SessionOpened("base"), clock) as log:
            log.append(UserSaid((Text("hello"),)))
            with log.fork(store, "fork") as fork:
                fork.append(UserSaid((Text("and on"),)))
                views = log.view, fork.view
        with Log.open(store, "base", clock) as base, Log.open(store, "fork", clock) as again:
            require_equal((base.view, again.view), views, "the views")


class BlobsContract:
    """The laws of a blob store: define `make`, which returns a new, empty store each time."""

    def make(self) -> BlobStore:
        """Return an empty store."""
        raise NotImplementedError

    def test_a_blob_is_found_by_its_digest_once(self) -> None:
        """The address of a content is its SHA-256 in hexadecimal digits; the same content is one blob."""
        blobs = self.make()
        contents = (b"hello", b"", b"hello", bytes(range(256)) * 5_000)
        wanted = [sha256(content).hexdigest() for content in contents]
        require_equal([blobs.put(content) for content in contents], wanted, "the addresses")
        require_equal([blobs.get(address) for address in wanted], list(contents), "the contents")
        require_equal([blobs.size(address) for address in wanted], [len(content) for content in contents], "the sizes")
        require_equal(list(blobs.addresses()), sorted(set(wanted)), "the list of addresses")
        require(all(address in blobs for address in wanted), "an address is not in the store")

    def test_what_is_not_there_is_missing_and_what_is_no_address_is_refused(self) -> None:
        """An unknown address raises `MissingBlob`, another text `BadInput`."""
        blobs, unknown = self.make(), sha256(b"never put").hexdigest()
        for ask in (blobs.get, blobs.size):
            require_error(MissingBlob, partial(ask, unknown), "an unknown address")
            for text in _NO_ADDRESSES:
                require_error(BadInput, partial(ask, text), f"the address {text!r}")
        require(unknown not in blobs, "an unknown address is in the store")


def _all(lines: LogFile) -> bytes:
    return b"".join(data for _, data in lines.chunks())


class HomeContract:
    """The laws of a home: define `make`, which returns a new, empty home each time. Its stores have contracts of their own."""

    def make(self) -> Home:
        """Return an empty home."""
        raise NotImplementedError

    def test_a_session_is_there_when_it_is_opened_again(self) -> None:
        """What was appended to a session is read again, listed, and gone once the session is removed."""
        home = self.make()
        with home.new(cwd="/repo", model="m", title="Greeting") as log:
            log.append(UserSaid((Text("hello"),)))
            session, view = log.session, log.view
        require_equal((tuple(home.store.sessions()), home.store.stat(session).size > 0), ((session,), True), "the sessions")
        with home.open(session) as again:
            require_equal((again.view, again.opened.cwd, again.opened.model), (view, "/repo", "m"), "the session")
            require_equal(again.event(1).body, Titled("Greeting"), "its title")
        home.store.remove(session)
        require_equal(tuple(home.store.sessions()), (), "the sessions after the removal")

    def test_a_session_has_one_writer_and_any_number_of_readers(self) -> None:
        """A second writer is refused with `Locked`, and a reader is not."""
        home = self.make()
        with home.new() as log:
            require_error(Locked, lambda: home.open(log.session), "a second writer")
            with home.open(log.session, write=False) as reader:
                require_equal(reader.tip, 0, "the newest event")

    def test_a_fork_leaves_its_base_as_it_was(self) -> None:
        """A fork goes on from an event, and its base does not change."""
        home = self.make()
        with home.new() as log:
            log.extend([UserSaid((Text("one"),)), UserSaid((Text("two"),))])
            with home.fork(log, 1) as fork:
                fork.append(UserSaid((Text("three"),)))
                require_equal(fork.view.ids, ("1.0", "3.0"), "the items of the fork")
            require_equal(log.view.ids, ("1.0", "2.0"), "the items of its base")

    def test_a_document_is_read_and_replaced_whole(self) -> None:
        """A document is the same under its name, changes from what it is now, and is gone once a change returns `None`."""
        home = self.make()
        document, again = home.document("folder/state"), home.document("folder/state")
        require_equal((document.load(), document.read()), (None, None), "a document that was never written")
        require_equal((document.save(b"old"), again.read(), home.document("other").read()), (True, b"old", None), "the saved value")
        again.change(lambda data: (data or b"") + b" and new")
        require_equal((document.load(), document.read()), (b"old and new", b"old and new"), "the changed value")
        document.change(lambda _: None)
        require_equal((again.load(), again.read()), (None, None), "the deleted value")

    def test_the_index_finds_what_was_said(self) -> None:
        """The index lists the sessions and finds their words."""
        home = self.make()
        with home.new(title="One") as log:
            log.extend([UserSaid((Text("a palimpsest is written over"),))])
        with home.index() as index:
            index.refresh()
            require_equal([(hit.session, hit.item) for hit in index.search("written")], [(log.session, "2.0")], "the hits")
            require_equal(([row.title for row in index.list()], index.note), (["One"], ""), "the titles")

    def test_cards_blobs_and_slots_are_there(self) -> None:
        """A new home has the built-in cards and no others, keeps blobs, and has the documents that the library names."""
        home = self.make()
        require_equal((home.own_cards(), [each.name for each in home.cards()]), ((), [each.name for each in CARDS]), "the cards")
        require_equal((home.blobs.get(home.blobs.put(b"kept")), home.has_index), (b"kept", False), "a blob, and an index")
        for document in (home.imports, home.pauses, home.tool_counts):
            require_equal((document.load(), document.save(b"seen"), document.load()), (None, True, b"seen"), document.name)


class ProviderContract:
    """The laws of a provider: define `make`, which returns one that answers `hello` with some text; `model` is the card to encode for.

    A provider of a remote model is best pointed at a recorded or loopback server: the laws make a few requests each.
    """

    model: ModelCard | str = "claude-sonnet-4-5"

    def make(self) -> Provider:
        """Return a provider that is ready for a few requests."""
        raise NotImplementedError

    def test_a_stream_ends_with_one_whole_reply(self) -> None:
        """Deltas come first; the last piece, and no other, is the reply."""
        pieces = asyncio.run(_pieces(self.make(), self._request()))
        require(bool(pieces) and isinstance(pieces[-1], ModelReplied), "the last piece is no ModelReplied")
        require_equal(sum(isinstance(piece, ModelReplied) for piece in pieces), 1, "the number of replies")

    def test_the_deltas_are_the_reply_in_pieces(self) -> None:
        """The texts of the deltas, if there are any, join to the text of the reply; no text comes in the deltas alone."""
        *deltas, reply = asyncio.run(_pieces(self.make(), self._request()))
        require(isinstance(reply, ModelReplied), "the last piece is no ModelReplied")
        streamed = "".join(piece.text for piece in deltas if isinstance(piece, TextDelta))
        whole = "".join(text_of(part) for part in getattr(reply, "parts", ()) if isinstance(part, Text))
        require(streamed in ("", whole), f"the deltas give {streamed!r}, the reply {whole!r}")

    def test_a_reply_can_be_recorded(self) -> None:
        """Its texts are of the assistant, its calls have names and arguments, and a log takes it."""
        reply = asyncio.run(_pieces(self.make(), self._request()))[-1]
        if not isinstance(reply, ModelReplied):
            raise ContractBroken("the last piece is no ModelReplied")
        require(all(part.role == "assistant" for part in reply.parts if isinstance(part, Text)), "a text is not of the assistant")
        require(all(part.tool for part in reply.parts if isinstance(part, ToolCall)), "a call has no tool")
        log = Home.in_memory().new()
        log.append(reply)
        require_equal(len(log.view.items), len(reply.parts), "the items of the recorded reply")

    def test_a_stream_can_be_abandoned_and_the_provider_used_again(self) -> None:
        """After its first piece a stream is closed, as an interrupt does; the next request is answered."""
        provider, request = self.make(), self._request()

        async def abandoned() -> list[Delta | ModelReplied]:
            arrived = PartialReply()
            async with providers_closing(provider.stream(request)) as pieces:
                async for piece in pieces:
                    if not isinstance(piece, ModelReplied):
                        arrived.add(piece)
                    break
            return await _pieces(provider, request)

        require(isinstance(asyncio.run(abandoned())[-1], ModelReplied), "the second request has no reply")

    def _request(self) -> Sendable:
        log = Home.in_memory().new()
        log.append(UserSaid((Text("hello"),)))
        return encode(log.view, card(self.model) if isinstance(self.model, str) else self.model)


async def _pieces(provider: Provider, request: Sendable) -> list[Delta | ModelReplied]:
    async with providers_closing(provider.stream(request)) as pieces:
        return [piece async for piece in pieces]


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
