"""What commands in a sandbox see of the system and of the home folder: what building and testing need, and no file with secrets."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from palimpsest.core.redaction import find_secrets

SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/sys", "/nix", "/gnu", "/snap"),
    *("/var/lib/dpkg", "/var/lib/rpm", "/var/lib/gems", "/var/lib/ghc", "/var/cache/fontconfig", "/home/linuxbrew/.linuxbrew"),
)
"""Programs, libraries and settings of the system. Data of services (`/var`, `/srv`), other disks and other users are not among it."""
# Folders of a home with programs and downloaded packages. Files with accounts lie beside them, so no folder around is named.
_TOOLCHAINS: Final = (
    *(".local/bin", ".local/lib", ".local/share/pipx", ".local/pipx", ".local/share/mise", ".local/share/pnpm"),
    *(".local/share/uv/python", ".local/share/uv/tools"),
    *(".cache/pip", ".cache/uv", ".cache/pypoetry/cache", ".cache/pypoetry/artifacts", ".cache/pypoetry/virtualenvs", ".cache/pre-commit"),
    *(".cache/go-build", ".cache/yarn", ".cache/node", ".cache/ms-playwright", ".cache/bazelisk", ".cache/coursier", ".cache/deno"),
    *(".pyenv", ".conda/pkgs", ".conda/envs", "miniconda3", "anaconda3", "miniforge3", ".virtualenvs"),
    *(".rye/shims", ".rye/py", ".rye/uv", ".rye/self", ".rye/tools", ".rye/pip-tools", ".rye/config.toml"),
    *(".nvm", ".fnm", ".local/share/fnm", ".volta", ".npm/_cacache", ".npm-global", ".bun/bin", ".bun/install/cache", ".deno/bin"),
    *(".cargo/bin", ".cargo/registry", ".cargo/git", ".cargo/env", ".rustup", "go/bin", "go/pkg", ".asdf", ".sdkman/candidates"),
    *(".m2/repository", ".m2/wrapper", ".gradle/caches", ".gradle/wrapper", ".ivy2/cache", ".sbt/boot", ".konan"),
    *(".rbenv", ".rvm", ".gem/ruby", ".bundle/cache", ".ghcup/bin", ".ghcup/ghc", ".cabal/packages", ".cabal/bin", ".cabal/store"),
    *(".dotnet/dotnet", ".dotnet/host", ".dotnet/sdk", ".dotnet/sdk-manifests", ".dotnet/shared", ".dotnet/packs", ".dotnet/tools"),
    *(".nuget/packages", ".hex/packages", ".mix/archives", ".mix/elixir", ".julia/packages", ".julia/registries"),
    *(".julia/artifacts", ".pub-cache/hosted", ".composer/cache", ".nix-profile", ".nix-defexpr", ".linuxbrew"),
)
# Settings without which git and builds do something else. Each is shown only if no secret is found in it.
_JUDGED_FILES: Final = (
    *(".gitconfig", ".config/git/config", ".config/git/ignore", ".config/git/attributes", ".cargo/config.toml", ".cargo/config"),
    *(".tool-versions", ".config/mise/config.toml", ".python-version", ".node-version", ".nvmrc", ".ripgreprc"),
)
_LARGEST_JUDGED: Final = 200_000
# The folder of a toolchain whose entries have names of the user, and the entry with accounts, which alone is not shown.
_OPAM, _OPAM_ACCOUNTS = ".opam", "plugins"
_ENVIRONMENT_FILES: Final = ("pyvenv.cfg", "conda-meta")


def visible_paths(home: Path, shown: tuple[Path, ...] = (), search_path: str | None = None) -> tuple[Path, ...]:
    """The existing files and folders beside the project that commands may read: of the system, of the home, and what a setting names."""
    found = [*_existing(map(Path, SYSTEM)), *_existing(home / name for name in _TOOLCHAINS)]
    found += [path for path in sorted((home / _OPAM).glob("*")) if path.name != _OPAM_ACCOUNTS]
    found += [path for path in _existing(home / name for name in _JUDGED_FILES) if _is_harmless(path)]
    found += _programs(home, os.environ.get("PATH", os.defpath) if search_path is None else search_path)
    # The Python of this program, wherever it lies: the programs of a project are often run with the same.
    found += [path for path in map(Path, (sys.base_prefix, sys.prefix)) if path.is_dir() and not _holds(path, home)]
    found += _existing(path if path.is_absolute() else home / path for path in map(Path.expanduser, shown))
    return tuple(dict.fromkeys(found))


def _holds(folder: Path, home: Path) -> bool:
    """Whether a folder is the home folder or around it, however it is written."""
    return home.resolve().is_relative_to(folder.resolve())


def _existing(paths: Iterator[Path]) -> Iterator[Path]:
    return (path for path in paths if path.exists())


def _is_harmless(path: Path) -> bool:
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST_JUDGED:
            return False
        return not find_secrets(path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return False


def _programs(home: Path, search_path: str) -> Iterator[Path]:
    """The folders of the search path; with the whole environment if it is one of Python."""
    for word in search_path.split(os.pathsep):
        folder = Path(word)
        if not folder.is_absolute() or not folder.is_dir() or _holds(folder, home):
            continue
        around = folder.parent
        yield around if any((around / name).exists() for name in _ENVIRONMENT_FILES) and not _holds(around, home) else folder
