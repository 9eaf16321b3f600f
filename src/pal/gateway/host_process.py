"""A process that records conversations for a gateway, see `workers`: does one thing after the other until its socket is closed."""

import gc
import pickle
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from pal.gateway.hosting import ConversationHost, Mode
from pal.gateway.thinking import ThinkingMode
from pal.gateway.workers import FOLD, KEEP_ALIVE, LENGTH_BYTES
from palimpsest.stores.home import Home

# Objects between two searches for garbage; a request makes thousands that are no garbage, and a search looks at all of them.
_COLLECT_EVERY = 50_000


def main() -> None:
    """Serve one gateway. The arguments are the number of the socket, the folder of the home, the mode, that of thinking, and options."""
    number, folder, mode, thinking, *options = sys.argv[1:]
    gc.freeze()
    gc.set_threshold(_COLLECT_EVERY)
    host = ConversationHost(
        Home.at(folder),
        cast("Mode", mode),
        fold=FOLD in options,
        keeps_alive=KEEP_ALIVE in options,
        thinking=cast("ThinkingMode", thinking),
    )
    # A gateway that is gone needs no answer.
    with suppress(OSError), socket.socket(fileno=int(number)) as gateway, gateway.makefile("rb") as requests:
        while len(length := requests.read(LENGTH_BYTES)) == LENGTH_BYTES:
            # Only the gateway that started this process writes to this socket.
            work: Callable[[ConversationHost], object] = pickle.loads(requests.read(int.from_bytes(length)))  # noqa: S301 - the same
            answer = pickle.dumps(_done(work, host))
            gateway.sendall(len(answer).to_bytes(LENGTH_BYTES) + answer)


def _done(work: Callable[[ConversationHost], object], host: ConversationHost) -> tuple[str, object]:
    """The failure, empty if there is none, and the result."""
    try:
        return "", work(host)
    except Exception as error:  # noqa: BLE001 - it is raised in the gateway
        return repr(error), None


if __name__ == "__main__":
    main()
