"""Replaces a file of the project in one step, so that a crash leaves the old content or the new one."""

import os
import stat
from contextlib import suppress
from pathlib import Path
from secrets import token_hex


def replace_file(path: Path, data: bytes) -> None:
    """Write the bytes beside the file and put them in its place; missing folders are made, and the mode of the file is kept.

    Raises `OSError` if the disk refuses; the file is then as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
    beside = path.with_name(f".{path.name}.{token_hex(6)}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    handle = os.open(beside, flags, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            beside.chmod(mode)
        beside.replace(path)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
