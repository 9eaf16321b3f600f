"""The contracts of session stores and blob stores."""

from contextlib import closing
from functools import partial
from hashlib import sha256

from palimpsest.core.errors import BadInput, Locked, MissingBlob, ReadOnly, StoreError
from palimpsest.core.events import SessionOpened, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.log.log import Log
from palimpsest.core.ports import BlobStore, LogFile, SessionStore
from palimpsest.stores.ephemeral import FixedClock
from palimpsest.testing.laws import require, require_equal, require_error

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
