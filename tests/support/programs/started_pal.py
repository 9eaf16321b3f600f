"""Runs `pal` in processes of their own that need not import it: each is a fork of one that has, which is most of what a start costs."""

import array
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final

# What a prompt, and what the commands that tests ask beside it, import.
_MODULES: Final = (
    *("pal.cli.main", "pal.cli.run", "pal.cli.engine_session", "pal.cli.show", "pal.cli.audit", "pal.cli.sessions", "pal.cli.memory"),
    *("palimpsest.agent.agent", "palimpsest.providers.http", "palimpsest.coding.permissions", "palimpsest.policies.named"),
)
_servers: dict[int, tuple[subprocess.Popen[bytes], socket.socket]] = {}


def run_pal(words: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """What `subprocess.run` returns of `python -m pal.cli` with these words, no input and text as output.

    Not for a test that looks for the process in `/proc`, which shows the words and variables of the first one.
    """
    command = [sys.executable, "-m", "pal.cli", *words]
    if sys.platform != "linux":
        # Elsewhere a process that was forked may not ask the system for its settings.
        return subprocess.run(
            command, cwd=cwd, env=dict(env), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=timeout
        )
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        connection = _server()
        task = json.dumps({"words": list(words), "cwd": str(cwd), "env": dict(env)}).encode()
        descriptors = array.array("i", [out.fileno(), err.fileno()])
        connection.sendmsg([len(task).to_bytes(8, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
        connection.sendall(task)
        process = int.from_bytes(_exactly(connection, 8), "big")
        connection.settimeout(timeout)
        try:
            status = int.from_bytes(_exactly(connection, 8), "big")
        except TimeoutError as error:
            os.kill(process, signal.SIGKILL)
            end_started()
            raise subprocess.TimeoutExpired(command, timeout) from error
        finally:
            connection.settimeout(None)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(command, os.waitstatus_to_exitcode(status), out.read(), err.read())


def end_started() -> None:
    """End the process that the others are forks of; the next start begins with another one."""
    process, connection = _servers.pop(os.getpid(), (None, None))
    if process is not None and connection is not None:
        connection.close()
        process.wait()


def _server() -> socket.socket:
    if os.getpid() not in _servers:
        ours, theirs = socket.socketpair()
        words = [sys.executable, __file__, str(theirs.fileno())]
        _servers[os.getpid()] = subprocess.Popen(words, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL), ours
        theirs.close()
    return _servers[os.getpid()][1]


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = connection.recv(size - len(found))
        if not more:
            raise EOFError
        found += more
    return found


def _serve(connection: socket.socket) -> None:
    """Fork for each task until nobody has any more. Returns in a process that is to be `pal`."""
    for name in _MODULES:
        import_module(name)
    while True:
        size, ancillary, _, _ = connection.recvmsg(8, socket.CMSG_LEN(8))
        if not size:
            sys.exit()
        descriptors = array.array("i", ancillary[0][2])
        task = json.loads(_exactly(connection, int.from_bytes(size, "big")))
        process = os.fork()
        if not process:
            connection.close()
            _become(task["words"], task["cwd"], task["env"], *descriptors)
            return
        for each in descriptors:
            os.close(each)
        # Whoever asks may be gone before the end.
        with suppress(BrokenPipeError):
            connection.sendall(process.to_bytes(8, "big"))
            connection.sendall(os.waitpid(process, 0)[1].to_bytes(8, "big"))


def _become(words: list[str], cwd: str, env: dict[str, str], out: int, err: int) -> None:
    """Take over what a process begins with: its words, folder, environment and streams."""
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["pal", *words]
    # Not the folder of this file.
    sys.path[0] = cwd


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
    from pal.cli.start import main

    main()
