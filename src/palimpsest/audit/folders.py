"""Paths by folder, so that a common beginning is written once and the last two parts of each path stand together."""

from collections.abc import Callable, Sequence


def grouped(paths: Sequence[str]) -> list[str]:
    """One line for each beginning, the newest path first; each path shows as it was written or by its last two parts."""
    groups: dict[str, list[str]] = {}
    for path in reversed(paths):
        beginning, rest = _parted(path)
        groups.setdefault(beginning, []).append(rest)
    return [f"- {beginning}: {', '.join(rests)}" if beginning else f"- {', '.join(rests)}" for beginning, rests in groups.items()]


def counted(paths: Sequence[str]) -> list[str]:
    """One line for each folder with how many of the paths lie in it, the newest folder first."""
    counts: dict[str, int] = {}
    for path in reversed(paths):
        folder = _folder(path)
        counts[folder] = counts.get(folder, 0) + 1
    return [f"- {folder}: {count} more" for folder, count in counts.items()]


def fitting(paths: Sequence[str], room: int, size: Callable[[str], int]) -> list[str]:
    """Lines within a room: all paths, or the newest that fit and the others by folder with counts, or by number alone."""
    whole = grouped(paths)
    if size("\n".join(whole)) <= room:
        return whole
    low, high = 0, len(paths)
    while low < high:
        middle = (low + high + 1) // 2
        if size("\n".join(_with_rest(paths, middle))) <= room:
            low = middle
        else:
            high = middle - 1
    lines = _with_rest(paths, low)
    if size("\n".join(lines)) <= room:
        return lines
    line = f"- {len(paths)} paths"
    return [line] if size(line) <= room else []


_MOST_FOLDERS = 30


def _with_rest(paths: Sequence[str], newest: int) -> list[str]:
    cut = len(paths) - newest
    rest = counted(paths[:cut])
    if len(rest) > _MOST_FOLDERS:
        rest = [*rest[:_MOST_FOLDERS], f"- {len(rest) - _MOST_FOLDERS} more folders"]
    return [*grouped(paths[cut:]), *rest]


def _parted(path: str) -> tuple[str, str]:
    sign = "\\" if "\\" in path and "/" not in path else "/"
    parts = path.split(sign)
    if len(parts) <= 3:
        return "", path
    return sign.join(parts[:-2]) + sign, sign.join(parts[-2:])


def _folder(path: str) -> str:
    sign = "\\" if "\\" in path and "/" not in path else "/"
    folder, found, _ = path.rpartition(sign)
    return folder + sign if found else "."
