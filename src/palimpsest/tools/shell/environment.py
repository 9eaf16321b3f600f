"""The environment of shell commands: that of the agent, without secrets and without variables that change how bash itself behaves."""

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final

from palimpsest.core.redaction import find_secrets
from palimpsest.core.tokens.patterns import lazy_pattern

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
    from palimpsest.core.redaction.values import is_generated  # noqa: PLC0415 - with the rules for secrets, which few starts need

    is_place = name.endswith(_PLACES) and value.startswith(("/", "~", "."))
    return bool(find_secrets(f"{name}={value}")) or (not is_place and any(map(is_generated, _WORDS.split(value))))


def _steers(name: str) -> bool:
    return name in _BASH or name in _REPOSITORY or name.startswith("BASH_FUNC_")
