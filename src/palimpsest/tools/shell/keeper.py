"""Starts a command below a process that ends all that the command started: with the command, when asked to, and if we are killed."""

import os
import sys
from typing import Final

LEFT: Final = ".left"
"""Ending of a file beside `PAL_CWD_FILE` that says that processes outlived their command and were ended."""
# What a command started stays below this process, whatever session or group it moves to, because orphans become its children. It ends when
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
command = os.fork()
if not command:
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
if os.WIFSIGNALED(status):
    sign = os.WTERMSIG(status)
    if sign not in (9, 19):
        signal.signal(sign, signal.SIG_DFL)
    os.kill(os.getpid(), sign)
os._exit(os.waitstatus_to_exitcode(status) & 255)
"""


def kept(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments that run a command below a process that keeps it. Only Linux has what that needs; elsewhere they stay as they are."""
    if sys.platform != "linux":
        return arguments
    return (sys.executable, "-I", "-S", "-c", _SCRIPT, str(os.getpid()), *arguments)
