"""Shell commands as processes, in the foreground or background, their environment, and the end of all they started."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct, field

from palimpsest.core.redaction import find_secrets
from palimpsest.core.text import lazy_pattern

# Names of variables, by their parts: keys of providers and services are named so by convention.
_SECRET_PARTS: Final = frozenset(
    {
        *("KEY", "KEYS", "APIKEY", "TOKEN", "TOKENS", "SECRET", "SECRETS", "PAT", "DSN", "COOKIE", "COOKIES", "JWT", "BEARER", "SAS", "SK"),
        *(
            "PASSWORD",
            "PASSWORDS",
            "PASSWD",
            "PASSPHRASE",
            "PASS",
            "PASSCODE",
            "PW",
            "PWD",
            "PSWD",
            "PIN",
            "CREDENTIAL",
            "CREDENTIALS",
            "CREDS",
            "CRED",
        ),
        *("AUTH", "AUTHORIZATION", "PRIVATE", "SIGNING", "WEBHOOK", "SALT", "PEPPER", "OTP", "TOTP", "MNEMONIC", "NETRC"),
    }
)
_SECRET_ENDINGS: Final = (
    *("APIKEY", "SECRETKEY", "ACCESSKEY", "PRIVATEKEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PSWD", "PWD", "PWD_FILE", "JWT"),
    *("PASSPHRASE", "PASSWORDS", "CREDENTIALS", "BINDPW", "ROOTPW"),
    *("CONNECTION_STRING", "CONNECTIONSTRING", "CONN_STR"),
)
# They hold the address of a key store or of a terminal, not a secret.
_NO_SECRETS: Final = frozenset({"SSH_AUTH_SOCK", "PWD", "OLDPWD"})
# They hold folders and files, whose names may look generated.
_PLACES: Final = ("PATH", "HOME", "DIR", "DIRS", "ROOT", "PREFIX", "SHELL", "FILE", "VIRTUAL_ENV", "TMPDIR", "LS_COLORS")
# Bash reads a file, a search path or a function from them before the command begins.
_BASH: Final = frozenset({"BASH_ENV", "ENV", "CDPATH", "PROMPT_COMMAND", "SHELLOPTS", "BASHOPTS", "GLOBIGNORE", "PS4", "EXECIGNORE"})
# They name another repository than the one around the folder, whose settings decide whether git may run without a question. A hook of git
# has them, and so has all that it starts.
_REPOSITORY: Final = frozenset(
    {
        *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES"),
        *("GIT_CONFIG", "GIT_CONFIG_PARAMETERS", "GIT_PREFIX", "GIT_SHALLOW_FILE", "GIT_GRAFT_FILE", "GIT_NAMESPACE"),
    }
)
# Settings of git, by number. It starts for no command at all if one is missing.
_SETTING: Final = "GIT_CONFIG_"
_NUMBERED: Final = lazy_pattern(rf"{_SETTING}(?:COUNT|KEY_\d+|VALUE_\d+)")
_MOST_SETTINGS: Final = 1_000
# Git runs it as a shell command, with the file to be edited as an argument.
_NO_TODO_EDITOR: Final = (
    'echo "there is no editor here: set GIT_SEQUENCE_EDITOR to a command that edits the list of commits, such as sed -i" >&2; false'
)
# An editor would wait for a user. Git takes the message that it proposes instead, as for a merge, and refuses an empty one. The list of
# commits of an interactive rebase would be taken as it is, too, and nothing would change: that has to fail.
_WITHOUT_TERMINAL: Final = {
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": _NO_TODO_EDITOR,
}
_SHORTEST_SECRET: Final = 8
_WORDS: Final = lazy_pattern(r"[\s/;,&=?:@]+")
# `SSHPASS`, `DBPASS`; an ASKPASS is a program that asks.
_PASS: Final = lazy_pattern(r"(?<!ASK)(?<!BY)(?<!COM)PASS$")
# A password may have slashes; digits before one are a port.
_URL_PASSWORD: Final = lazy_pattern(r"[a-z][a-z0-9+.-]*://[^/@\s:]*:(?!\d+/)[^@\s]+@", re.IGNORECASE)
# As in headers of HTTP, in data sources of Go, in addresses of Oracle, and in a key as a text.
_CREDENTIALS: Final = lazy_pattern(
    r"authorization\s*[:=]\s*\w+\s+\S|^[^\s:/@]+:[^\s/@]+@(?!sha\d)|^jdbc:\S+:[\w.$-]+/[^\s/@]+@|-BEGIN [A-Z ]*PRIVATE KEY", re.IGNORECASE
)
# As in connection strings of JDBC, libpq, ODBC and ADO.NET.
_FIELD_PASSWORD: Final = lazy_pattern(r"(?:^|[?&;,\s])(?:password|passwd|pwd)\s*=\s*[^\s;&]", re.IGNORECASE)


def command_environment(
    environment: Mapping[str, str], *, keep: frozenset[str] = frozenset(), withhold: frozenset[str] = frozenset()
) -> dict[str, str]:
    """The variables that a command gets: no secrets but those named in `keep`, nothing that steers bash or git, no pager and no editor.

    A variable is secret by its name, by its value, or because it is named in `withhold`, which wins.
    """
    passed = {
        name: value
        for name, value in environment.items()
        if name not in withhold and not _NUMBERED.fullmatch(name) and (name in keep or not (_steers(name) or is_secret(name, value)))
    }
    return {**passed, **_git_settings(environment, keep, withhold), **_WITHOUT_TERMINAL}


def _git_settings(environment: Mapping[str, str], keep: frozenset[str], withhold: frozenset[str]) -> dict[str, str]:
    """The numbered settings of git without those that hold a secret."""
    count = environment.get(f"{_SETTING}COUNT", "")
    found: list[tuple[str, str]] = []
    for number in range(min(int(count), _MOST_SETTINGS) if count.isdecimal() else 0):
        names = (f"{_SETTING}KEY_{number}", f"{_SETTING}VALUE_{number}")
        key, value = (environment.get(name, "") for name in names)
        secret = is_secret(key.replace(".", "_"), value) or _holds_secret("", key)
        if key and withhold.isdisjoint(names) and (names[1] in keep or not secret):
            found.append((key, value))
    numbered = {
        f"{_SETTING}{part}_{place}": text for place, pair in enumerate(found) for part, text in zip(("KEY", "VALUE"), pair, strict=True)
    }
    return {f"{_SETTING}COUNT": str(len(found)), **numbered} if found else {}


class CommandEnvironment(Mapping[str, str]):
    """The same variables, judged with their first use: many sessions run no command."""

    def __init__(
        self, environment: Mapping[str, str], *, keep: frozenset[str] = frozenset(), withhold: frozenset[str] = frozenset()
    ) -> None:
        self._given, self._keep, self._withhold = dict(environment), keep, withhold

    @cached_property
    def _passed(self) -> dict[str, str]:
        return command_environment(self._given, keep=self._keep, withhold=self._withhold)

    def __getitem__(self, name: str) -> str:
        return self._passed[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._passed)

    def __len__(self) -> int:
        return len(self._passed)


def is_secret(name: str, value: str = "") -> bool:
    """Whether a variable holds a secret."""
    if name in _NO_SECRETS:
        return False
    upper = name.upper()
    named = not _SECRET_PARTS.isdisjoint(upper.split("_")) or upper.endswith(_SECRET_ENDINGS) or _PASS.search(upper) is not None
    return named or _holds_secret(upper, value)


def _holds_secret(name: str, value: str) -> bool:
    """Whether the value alone gives it away: a URL with a password, a secret of a known form, or a text that only a machine writes."""
    if any(each.search(value) is not None for each in (_URL_PASSWORD, _FIELD_PASSWORD, _CREDENTIALS)):
        return True
    if len(value) < _SHORTEST_SECRET:
        return False
    from palimpsest.core.secrets import is_generated

    is_place = name.endswith(_PLACES) and value.startswith(("/", "~", "."))
    return bool(find_secrets(f"{name}={value}")) or (not is_place and any(map(is_generated, _WORDS.split(value))))


def _steers(name: str) -> bool:
    return name in _BASH or name in _REPOSITORY or name.startswith("BASH_FUNC_")


LEFT: Final = ".left"
"""Ending of a file beside `PAL_CWD_FILE` that says that processes outlived their command and were ended."""
# What a command started stays below this process, whatever session or group it moves to, because orphans become its children. The parent
# that the command sees is another process in a group of its own, so that `kill -9 $PPID` and `kill -9 0` do not end this one. It ends when
# the command and all of these have: half a second after the command they are killed. A request to end goes to all of them, and is forced
# after 1.5 seconds. It gets this request from the kernel too, when the thread that started it dies. Last, it ends as the command did.
_SCRIPT: Final = """\
import ctypes, os, signal, sys
prctl = ctypes.CDLL(None).prctl
prctl(36, 1, 0, 0, 0)
prctl(1, 15, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
def below():
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    words = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if words[0] not in b"ZX":
                parents.setdefault(int(words[1]), []).append(int(name))
    found = [os.getpid()]
    for each in found:
        found += parents.get(each, ())
    return found[1:]
def send(sign):
    found = below()
    for each in found:
        try:
            os.kill(each, sign)
        except OSError:
            pass
    return bool(found)
killed = False
def force(*_):
    global killed
    if send(9):
        killed = True
        # Another one may have been started meanwhile.
        signal.setitimer(signal.ITIMER_REAL, 0.02)
def end(*_):
    signal.signal(15, force)
    send(15)
    signal.setitimer(signal.ITIMER_REAL, 1.5)
def end_as(status):
    if os.WIFSIGNALED(status):
        sign = os.WTERMSIG(status)
        if sign not in (9, 19):
            signal.signal(sign, signal.SIG_DFL)
        os.kill(os.getpid(), sign)
    os._exit(os.waitstatus_to_exitcode(status) & 255)
command = os.fork()
if not command:
    prctl(1, 9, 0, 0, 0)
    os.setsid()
    inner = os.fork()
    if inner:
        for sign in (1, 2, 15):
            signal.signal(sign, signal.SIG_IGN)
        for pipe in range(3):
            os.close(pipe)
        end_as(os.waitpid(inner, 0)[1])
    prctl(1, 9, 0, 0, 0)
    for sign in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(sign, signal.SIG_DFL)
    try:
        os.execvp(sys.argv[2], sys.argv[2:])
    except OSError as error:
        os.write(2, f"{sys.argv[2]}: {error.strerror}\\n".encode())
        os._exit(127)
signal.signal(15, end)
signal.signal(14, force)
signal.signal(2, signal.SIG_IGN)
for pipe in range(3):
    os.close(pipe)
status, forced = 0, False
while True:
    try:
        child, code = os.waitpid(-1, 0)
    except ChildProcessError:
        break
    if child == command:
        status, forced = code, killed
        killed = False
        signal.setitimer(signal.ITIMER_REAL, 0.5)
place = os.environ.get("PAL_CWD_FILE", "/dev/null")
if killed and not forced and place != "/dev/null":
    os.close(os.open(place + ".left", os.O_CREAT | os.O_WRONLY, 0o600))
end_as(status)
"""


def kept(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments that run a command below a process that keeps it. Only Linux has what that needs; elsewhere they stay as they are."""
    if sys.platform != "linux":
        return arguments
    return (sys.executable, "-I", "-S", "-c", _SCRIPT, str(os.getpid()), *arguments)


# It reads lines `+ group`, `- group`, `= mark` and `quit`. The end of the pipe means that no process holds its other end any more.
_WATCHER_SCRIPT: Final = """\
exec 3<&0
{
  groups=" "
  marks=
  while read -r sign group; do
    case $sign in
      quit) exit ;;
      +) groups="$groups$group " ;;
      =) marks="$marks $group" ;;
      -) case $groups in *" $group "*) groups="${groups%% "$group" *} ${groups#* "$group" }" ;; esac ;;
    esac
  done
  for group in $groups; do kill -15 "-$group"; done
  sleep 2
  for group in $groups; do kill -9 "-$group"; done
  for mark in $marks; do
    for place in /proc/[0-9]*; do grep -qaF -e "$mark" "$place/environ" && kill -9 "${place#/proc/}"; done
  done
} <&3 >/dev/null 2>&1 &
"""


class GroupWatcher:
    """Process groups that must not outlive this process, also if that is killed. The watching process starts with the first group.

    It is in a session of its own, so that a signal to the group of this process does not end it first.
    """

    def __init__(self) -> None:
        self._pipe: int | None = None

    def start(self) -> None:
        """Start the watching process, unless it runs. Without a shell that could watch, nothing is watched."""
        if self._pipe is None:
            with suppress(OSError):
                self._pipe = _started()

    def add(self, group: int) -> None:
        """Watch a process group."""
        self.start()
        self._write(f"+ {group}\n")

    def add_marked(self, mark: str) -> None:
        """Watch all processes with a text without spaces in their environment, where there is `/proc`."""
        self.start()
        self._write(f"= {mark}\n")

    def remove(self, group: int) -> None:
        """Watch a group no longer, because its process has ended."""
        self._write(f"- {group}\n")

    def close(self) -> None:
        """End the watching process; what it still watches goes on, as after any end of this process that is not sudden."""
        self._write("quit\n")
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            os.close(pipe)

    def _write(self, line: str) -> None:
        if self._pipe is not None:
            # The watching process may have been killed itself.
            with suppress(OSError):
                os.write(self._pipe, line.encode())


def _started() -> int:
    """Start the watching process and return the end of the pipe that keeps it waiting. Raises `OSError`."""
    reading, writing = os.pipe()
    try:
        # The shell leaves the waiting to a child, which it does not wait for, so nothing of it has to be reaped here.
        subprocess.run(  # noqa: S603  # a fixed program with a script of ours
            ("/bin/sh", "-c", _WATCHER_SCRIPT),
            stdin=reading,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath},
            cwd="/",
            start_new_session=True,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        os.close(writing)
        raise OSError(str(error)) from error
    finally:
        os.close(reading)
    # A line that does not fit is lost, which is better than waiting for a process that was stopped.
    os.set_blocking(writing, False)
    return writing


# Bytes of output that are kept of one command: so much of its beginning, and as much of its end.
HEAD: Final = 400_000
TAIL: Final = 400_000
# A variable of each command, by which the processes that it started are found if their keeper was killed.
_MARK: Final = "PAL_COMMAND"
_CHUNK: Final = 65_536
# Seconds that processes have to end when they are asked, and when they are forced: a busy machine may be late to say so.
_GRACE: Final = 2.0
_FORCED: Final = 5.0
_POLL: Final = 0.02
# A process may start another one between the search and its end.
_ROUNDS: Final = 5
# Seconds that processes have to end after the shell that started them, such as the other end of a process substitution.
_LINGER: Final = 0.5


class Output:
    """The output of a process, bounded: its beginning and its end, and how many bytes were left out between them."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self.left_out = 0
        self._unread = bytearray()
        self.arrived = asyncio.Event()

    def take(self, chunk: bytes) -> None:
        """Add a piece."""
        room = HEAD - len(self._head)
        self._head += chunk[:room]
        rest = chunk[room:] if room < len(chunk) else b""
        if rest:
            self._tail.append(rest)
            self._tail_size += len(rest)
            while self._tail_size - len(self._tail[0]) >= TAIL:
                gone = self._tail.popleft()
                self._tail_size -= len(gone)
                self.left_out += len(gone)
        self._unread += chunk
        self.arrived.set()
        del self._unread[: max(0, len(self._unread) - TAIL)]

    def text(self) -> str:
        """All that was kept."""
        gap = f"\n[{self.left_out:,} bytes left out]\n".encode() if self.left_out else b""
        return (bytes(self._head) + gap + b"".join(self._tail)).decode("utf-8", "replace")

    def unread(self) -> str:
        """What came since the last time this was called."""
        text = self._unread.decode("utf-8", "replace")
        self._unread.clear()
        self.arrived.clear()
        return text


class Running(Struct):
    """A process with its output; `exit` is known once it has ended. `note` is what its reader should know if it fails.

    `mark` is in the environment of all that it started.
    """

    process: asyncio.subprocess.Process
    command: str
    output: Output = field(default_factory=Output)
    reading: "asyncio.Task[None] | None" = None
    note: str = ""
    mark: str = ""

    @property
    def exit(self) -> int | None:
        """The exit code; negative for a signal, and none while it runs."""
        return self.process.returncode

    async def wait(self) -> int:
        """The exit code, once the process has ended and its output was read."""
        code = await self.process.wait()
        # A child that outlives the command may hold the pipe open.
        await self._drained()
        return code

    async def end_rest(self) -> Literal["none", "ended", "goes_on"]:
        """End what still runs in the group of a process that has ended, after a moment in which it may end by itself.

        Returns what there was: nothing, processes that were ended, or one that has left the group, holds the output and goes on.
        """
        try:
            async with asyncio.timeout(_LINGER):
                await self._group_ended()
            ended = False
        except TimeoutError:
            await self.kill()
            ended = True
        if self.process.returncode == -signal.SIGKILL:
            # Perhaps by the command itself: what had left its group is below no process of ours now.
            ended = self._kill_marked() or ended
        if not await self._drained():
            return "goes_on"
        return "ended" if ended else "none"

    async def _drained(self) -> bool:
        """Whether no process holds the output any more; waits a moment for it."""
        if self.reading is not None and not self.reading.done():
            await asyncio.wait((self.reading,), timeout=_LINGER)
        return self.reading is None or self.reading.done()

    async def kill(self) -> None:
        """End the process and all that it started: asked first, then forced. If the task is cancelled meanwhile, forced at once."""
        try:
            for sign, seconds in ((signal.SIGTERM, _GRACE), (signal.SIGKILL, _FORCED)):
                self._signal(sign)
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._group_ended(), seconds)
                    return
        except asyncio.CancelledError:
            self._signal(signal.SIGKILL)
            await wait_killed(self.process)
            raise

    def _signal(self, sign: signal.Signals) -> None:
        """Send a signal to the group. Force reaches the processes below too, which may have left it."""
        for _ in range(_ROUNDS if sign == signal.SIGKILL else 0):
            if not (found := _below(self.process.pid)):
                break
            for each in found:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(each, sign)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, sign)

    def _kill_marked(self) -> bool:
        """Kill what bears the mark of this process. Returns whether there was anything; without `/proc`, nothing is found."""
        wanted = f"{_MARK}={self.mark}".encode()
        found = False
        for entry in Path("/proc").glob("[0-9]*/environ") if self.mark else ():
            with suppress(OSError):
                if wanted in entry.read_bytes().split(b"\0"):
                    os.kill(int(entry.parent.name), signal.SIGKILL)
                    found = True
        return found

    async def _group_ended(self) -> None:
        """Wait for the process, and for those of its group that outlive it."""
        await self.process.wait()
        while True:
            if not _is_alive(self.process.pid):
                return
            await asyncio.sleep(_POLL)


async def wait_killed(process: asyncio.subprocess.Process) -> None:
    """Wait until asyncio knows of the end of a process that was killed, for seconds at most; a cancellation meanwhile is raised after it.

    A loop that is closed before that, such as one whose end cancels the task, leaves the process open for ever.
    """
    clock, cancelled = asyncio.get_running_loop(), False
    until = clock.time() + _FORCED
    while process.returncode is None and (seconds := until - clock.time()) > 0:
        try:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), seconds)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError


def _below(top: int) -> list[int]:
    """The processes that a process started and those that they started, as far as they run and the system tells."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            # After the name, which may hold anything: state, parent.
            state, parent, *_ = entry.read_bytes().rpartition(b")")[2].split()
            if state not in (b"Z", b"X"):
                parents.setdefault(int(parent), []).append(int(entry.parent.name))
    found = [top]
    for each in found:
        found += parents.get(each, [])
    return found[1:]


def _is_alive(group: int) -> bool:
    """Whether a process of a group still runs. One that has ended and was not waited for does not, though signals reach it."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    if not Path("/proc/self/stat").exists():
        return True
    return any(_runs_in(group, entry) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _runs_in(group: int, process: Path) -> bool:
    try:
        # After the name, which may hold anything: state, parent, group.
        state, _, own, *_ = (process / "stat").read_bytes().rpartition(b")")[2].split()
    except (OSError, ValueError):
        return False
    return int(own) == group and state not in (b"Z", b"X")


async def start(
    arguments: tuple[str, ...], command: str, cwd: Path, environment: Mapping[str, str], watcher: GroupWatcher | None = None
) -> Running:
    """Start a process in a group of its own, without standard input. Raises `OSError` if it cannot be started.

    With a `watcher`, the group is killed if this process is.
    """
    mark = os.urandom(16).hex()
    creating = asyncio.ensure_future(_created(arguments, cwd, {**environment, _MARK: mark}))
    try:
        process, pipe = await asyncio.shield(creating)
    except asyncio.CancelledError:
        # asyncio would end the process itself, but not what it has started by then.
        process, pipe = await creating
        os.close(pipe)
        await Running(process, command).kill()
        raise
    running = Running(process, command, mark=mark)
    if watcher is not None:
        watcher.add(process.pid)
    running.reading = asyncio.create_task(_read(process, pipe, running.output, watcher))
    return running


async def _created(arguments: tuple[str, ...], cwd: Path, environment: Mapping[str, str]) -> tuple[asyncio.subprocess.Process, int]:
    """A new process, and the end of the pipe from which its output is read.

    The pipe is ours, because that of asyncio keeps `wait` from returning as long as any other process holds it.
    """
    reading, writing = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *arguments,
            cwd=cwd,
            env=dict(environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            start_new_session=True,
        )
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    return process, reading


async def _read(process: asyncio.subprocess.Process, pipe: int, output: Output, watcher: GroupWatcher | None) -> None:
    """Read the output until no process writes to it any more; until then the group is watched."""
    reader = asyncio.StreamReader()
    file = os.fdopen(pipe, "rb", buffering=0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    try:
        while chunk := await reader.read(_CHUNK):
            output.take(chunk)
    finally:
        transport.close()
    if watcher is not None:
        await process.wait()
        watcher.remove(process.pid)
