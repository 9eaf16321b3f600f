"""Ends the commands of a shell when this process is killed: a small process waits for the end of a pipe and kills what still runs."""

import os
import subprocess
from contextlib import suppress
from typing import Final

# It reads lines `+ group`, `- group`, `= mark` and `quit`. The end of the pipe means that no process holds its other end any more.
_SCRIPT: Final = """\
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
            ("/bin/sh", "-c", _SCRIPT),
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
