"""The commands `pal gateway` and `pal wrap`, which run a gateway for other agents, and the search for settings that bypass it."""

import asyncio
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

import click
import msgspec

from pal.cli.opening import find_home
from pal.cli.output import emit, json_option
from pal.text import plain, unfiltered
from palimpsest.audit.two_bills import GatewayBill
from palimpsest.core.errors import BadInput
from palimpsest.core.text import counted, dollars
from palimpsest.stores.home import FolderHome

if TYPE_CHECKING:
    from pal.gateway.gateway import RequestReport
    from pal.gateway.hosting import Mode
    from pal.gateway.thinking import ThinkingMode, ThreadMode


DEFAULT_PORT: Final = 8787
ARRIVED: Final = b"arrived\n"
"""The line by which a wrapped gateway reports that a first request came."""
MODES: Final = ("watch", "lossless", "palimpsest", "thrifty")
_EXTRA: Final = frozenset({"starlette", "uvicorn"})
_EXAMPLES = """\b
Examples:
  pal gateway                          watch: nothing is changed
  ANTHROPIC_BASE_URL=http://127.0.0.1:8787 claude
  pal gateway --mode palimpsest --port 9000
  pal wrap claude -- --continue        gateway and program in one"""

mode_option = click.option(
    "--mode",
    type=click.Choice(MODES),
    default="watch",
    show_default=True,
    help="watch changes nothing; lossless hides only repeats; palimpsest clears what is dead; thrifty clears more.",
)
fold_option = click.option("--fold", is_flag=True, help="Also fold, in palimpsest and thrifty; else that stays with the client.")

threads_option = click.option(
    "--threads",
    type=click.Choice(("refuse", "pass")),
    default=None,
    help="Threads that Anthropic holds: refuse makes the client send whole lists, pass leaves them unedited; default pass in watch only.",
)

thinking_option = click.option(
    "--thinking",
    type=click.Choice(("strip", "ask", "keep")),
    default="strip",
    show_default=True,
    help="Thinking that edits make unusable: strip leaves it out, ask lets the provider drop it, keep sends it all the same.",
)


@click.command(epilog=_EXAMPLES)
@mode_option
@fold_option
@threads_option
@thinking_option
@click.option(
    "--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True, help="Port on 127.0.0.1; 0 takes a free one."
)
@click.option(
    "--anthropic", default="", metavar="URL", help="Address of Anthropic Messages; default $ANTHROPIC_BASE_URL or the provider's."
)
@click.option(
    "--openai", default="", metavar="URL", help="Address of Responses and Chat Completions; default $OPENAI_BASE_URL or the provider's."
)
@click.option("--json-stream", is_flag=True, help="Print one JSON object for each request.")
@click.option("--wrapped", type=int, default=None, hidden=True, metavar="FD", help="For wrapped programs: report to FD, end with stdin.")
@click.option("--keep-alive", is_flag=True, hidden=True, help="For wrapped programs, of which it is known when the client is gone.")
@json_option
def gateway(
    *,
    mode: str,
    fold: bool,
    threads: str | None,
    thinking: str,
    keep_alive: bool,
    port: int,
    anthropic: str,
    openai: str,
    json_stream: bool,
    wrapped: int | None,
    as_json: bool,
) -> None:
    """Listen on this machine, pass requests on to the provider, and record them as sessions, until Ctrl-C.

    Replies pass byte for byte as they arrive. Keys pass in memory and are never written. If anything of this fails, requests pass as
    they are. `pal audit`, `pal undo`, `pal context` and `pal show` work on the sessions while they run. At the end the bill is printed,
    and what the same traffic would have cost directly. Needs the extra `gateway`.
    """
    try:
        from pal.gateway.gateway import Gateway, listening, serve, stopped_by_signals
        from pal.gateway.routing import Upstreams, require_other, upstream_of  # it imports the web server
        from pal.gateway.workers import ProcessWorkers
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        raise BadInput("the gateway is not installed; pip install 'palimpsest-agent[gateway]'", where="pal gateway") from error
    upstreams = Upstreams(
        upstream_of(anthropic or os.environ.get("ANTHROPIC_BASE_URL", ""), Upstreams().anthropic),
        upstream_of(openai or os.environ.get("OPENAI_BASE_URL", ""), Upstreams().openai),
    )
    home, socket = find_home(), listening(port)
    require_other(upstreams, socket.getsockname()[1])
    quiet = wrapped is not None or as_json
    report = _print_json if json_stream else _ignore if quiet else _print_line

    async def run() -> GatewayBill:
        keeps_alive, kept = keep_alive and wrapped is not None, cast("ThinkingMode", thinking)
        start = partial(ProcessWorkers, mode=cast("Mode", mode), fold=fold, keeps_alive=keeps_alive, thinking=kept)
        workers = start(home) if isinstance(home, FolderHome) else None
        arrived = _first_arrival(wrapped)
        make = partial(Gateway, arrived=arrived, report=report, warn=_warn, fold=fold, keeps_alive=keeps_alive, workers=workers)
        gateway = make(home, cast("Mode", mode), upstreams, threads=cast("ThreadMode | None", threads), thinking=kept)
        stop = stopped_by_signals()
        if wrapped is not None:
            _end_with_input(sys.stdin.fileno(), stop)
        await serve(gateway, socket, lambda url: _announce(url, mode, wrapped, quiet=quiet or json_stream), stop)
        return gateway.total

    total = asyncio.run(run())
    if wrapped is not None:
        os.write(wrapped, msgspec.json.encode(total) + b"\n")
    elif as_json:
        emit(msgspec.to_builtins(total))
    else:
        click.echo(bill_line(total), err=True)


def _first_arrival(wrapped: int | None) -> Callable[[], None]:
    """Return a function that reports the first request to the program that wraps the client."""
    waiting = [wrapped] if wrapped is not None else []

    def arrived() -> None:
        if waiting:
            # If the wrapping program is gone, the request is still answered.
            with suppress(OSError):
                os.write(waiting.pop(), ARRIVED)

    return arrived


def _end_with_input(number: int, stop: asyncio.Event) -> None:
    """Set an event once a file that nothing writes to has come to its end."""
    loop = asyncio.get_running_loop()

    def ended() -> None:
        # The end can be read for ever, which would keep the event loop busy while requests end.
        loop.remove_reader(number)
        stop.set()

    loop.add_reader(number, ended)


def _announce(url: str, mode: str, wrapped: int | None, *, quiet: bool) -> None:
    if wrapped is not None:
        os.write(wrapped, f"{url}\n".encode())
    elif not quiet:
        click.echo(f"pal gateway: {mode} on {url}; set ANTHROPIC_BASE_URL={url} or OPENAI_BASE_URL={url}/v1, Ctrl-C ends it", err=True)


def bill_line(bill: GatewayBill) -> str:
    """Return the bill of all requests in one line: what they cost, and what they would have cost directly."""
    if not bill.requests:
        return "pal gateway: no request was recorded"
    if bill.usd is None:
        return f"pal gateway: {counted(bill.requests, 'request')}, cost unknown: no price of the model or no usage was told"
    if bill.unknown_without:
        # The other requests have the second number alone, so that both have no share.
        begun = f"not known for {counted(bill.unknown_without, 'request')}, whose conversation was gone on with outside of the gateway"
        without = f"{dollars(bill.usd_without)}, {begun}" if bill.usd_without else begun
    else:
        without = f"{dollars(bill.usd_without)}{_share(bill.usd, bill.usd_without)}"
    unpriced = f"; the price of {counted(bill.unpriced, 'request')} more is not known" if bill.unpriced else ""
    priced = counted(bill.requests - bill.unpriced, "request")
    return f"pal gateway: {priced}, {dollars(bill.usd)}; sent directly the same would have cost {without}{unpriced}{_reasoning(bill)}"


def _reasoning(bill: GatewayBill) -> str:
    """What edits have cost in reasoning, which is in neither of the dollars; empty if they have cost none."""
    lost = bill.reasoning_lost
    recoveries = f"; {counted(bill.recoveries, 'request')} sent again without thinking" if bill.recoveries else ""
    if not lost.blocks:
        return recoveries
    size = "of unknown size" if lost.tokens is None else f"of {lost.tokens:,} tokens"
    return f"; edits cost {counted(lost.blocks, 'thinking block')} {size}, which are in neither number{recoveries}"


def _share(usd: float | None, without: float | None) -> str:
    return f" ({usd / without:.3f}x)" if without and usd is not None else ""


def _print_line(report: "RequestReport") -> None:
    tokens = (
        f"{report.tokens_in:,}" if report.tokens_in == report.tokens_forwarded else f"{report.tokens_in:,} → {report.tokens_forwarded:,}"
    )
    edits = f", {counted(report.edits, 'edit')}" if report.edits else ""
    price = "cost unknown"
    if report.usd is not None:
        price = f"{dollars(report.usd)} of {dollars(report.usd_without)}{_share(report.usd, report.usd_without)}"
    lost = f", {counted(report.reasoning_lost.blocks, 'thinking block')} lost so far" if report.reasoning_lost.blocks else ""
    line = f"{report.session} {report.request:>4}  {tokens} tokens{edits}, {price}{lost}"
    # On a terminal one line that changes, elsewhere one line a request.
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{plain(line)}", file=unfiltered(sys.stderr), nl=False)
    else:
        click.echo(line, err=True)


def _print_json(report: "RequestReport") -> None:
    click.echo(msgspec.json.encode(report))


def _ignore(report: "RequestReport") -> None:
    return


def _warn(message: str) -> None:
    click.echo(f"pal gateway: {message}", err=True)


# Variables by which Claude Code sends its requests elsewhere, whatever the address of Anthropic's API is.
_OTHER_CLOUDS: Final = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")
_ADDRESS: Final = "ANTHROPIC_BASE_URL"
_OFF: Final = ("", "0", "false", "no", "off")
_OWN_PROVIDER: Final = "openai"


def bypasses(agent: str, arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> list[str]:
    """Return what keeps a program from its gateway, one line each: the setting, and where it stands."""
    return list(_of_claude(arguments, environment, folder) if agent == "claude" else _of_codex(arguments, environment, folder))


def _of_claude(arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> Iterator[str]:
    yield from (f"{name} is set in the environment" for name in _OTHER_CLOUDS if environment.get(name, "").lower() not in _OFF)
    for place, text in (*_read(_claude_files(environment, folder)), *_given_settings(arguments)):
        try:
            settings = json.loads(text)
        except ValueError:
            continue
        variables = settings.get("env") if isinstance(settings, dict) else None
        if not isinstance(variables, dict):
            continue
        if variables.get(_ADDRESS):
            yield f"{place} sets env.{_ADDRESS}"
        yield from (f"{place} sets env.{name}" for name in _OTHER_CLOUDS if str(variables.get(name, "")).lower() not in _OFF)


def _claude_files(environment: Mapping[str, str], folder: Path) -> Iterator[Path]:
    """The settings of Claude Code: the user's, those of the project and its folders, and those of the administrator."""
    yield _home(environment, "CLAUDE_CONFIG_DIR", ".claude") / "settings.json"
    for place in (folder, *folder.parents):
        yield place / ".claude" / "settings.json"
        yield place / ".claude" / "settings.local.json"
    managed = Path("/Library/Application Support/ClaudeCode") if sys.platform == "darwin" else Path("/etc/claude-code")
    yield managed / "managed-settings.json"
    yield from sorted((managed / "managed-settings.d").glob("*.json"))


def _given_settings(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The settings that the command line names or contains."""
    for word in _values_of(arguments, "--settings"):
        yield from [("--settings", word)] if word.lstrip().startswith("{") else _read([Path(word)])


def _of_codex(arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> Iterator[str]:
    if "--oss" in arguments:
        yield "--oss uses a model of this machine"
    chosen = [*_values_of(arguments, "-p"), *_values_of(arguments, "--profile")]
    home = _home(environment, "CODEX_HOME", ".codex")
    files = (
        home / "config.toml",
        *(place / ".codex" / "config.toml" for place in (folder, *folder.parents)),
        Path("/etc/codex/config.toml"),
    )
    for place, text in _read(files):
        try:
            settings = tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            continue
        profiles = settings.get("profiles")
        names = chosen or [settings.get("profile", "")]
        used = [settings, *(profiles[name] for name in names if isinstance(profiles, dict) and isinstance(profiles.get(name), dict))]
        yield from (f"{place} sets model_provider = {provider!r}" for part in used if (provider := _provider(part)))
    for setting in (*_values_of(arguments, "-c"), *_values_of(arguments, "--config")):
        key, _, value = setting.partition("=")
        name = value.strip().strip("\"'")
        if key.strip() == "model_provider" and name != _OWN_PROVIDER:
            yield f"-c sets model_provider = {name!r}"


def _provider(settings: Mapping[str, Any]) -> str:
    """The provider that settings name; empty if it is Codex's own, whose address is given to it."""
    found = settings.get("model_provider")
    return found if isinstance(found, str) and found != _OWN_PROVIDER else ""


def _values_of(arguments: Sequence[str], option: str) -> list[str]:
    following = [after for word, after in pairwise(arguments) if word == option]
    return following + [word.partition("=")[2] for word in arguments if word.startswith(f"{option}=")]


def _home(environment: Mapping[str, str], variable: str, name: str) -> Path:
    return Path(environment[variable]) if environment.get(variable) else Path(environment.get("HOME") or Path.home()) / name


def _read(paths: "Iterator[Path] | Sequence[Path]") -> Iterator[tuple[str, str]]:
    for path in dict.fromkeys(paths):
        try:
            yield str(path), path.read_text(encoding="utf-8")
        except (OSError, UnicodeError):
            continue


# How each program goes on with its session without the gateway.
_AGAIN: Final = {"claude": "claude --continue", "codex": "codex resume --last"}
_STOP_SECONDS: Final = 15
# Programs that run without a terminal ask their model at once.
_QUIET_SECONDS: Final = 20
_WRAP_EXAMPLES = """\b
Examples:
  pal wrap claude
  pal wrap claude --mode palimpsest -- --continue
  pal wrap codex -- exec "say hello\""""


@click.command(epilog=_WRAP_EXAMPLES)
@click.argument("agent", type=click.Choice(sorted(_AGAIN)))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS...]")
@mode_option
@fold_option
@threads_option
@thinking_option
@click.option("--keep-alive", is_flag=True, help="Keep the cache alive in pauses, within 5 % of the cost; needs an API key of Anthropic.")
@click.option("--quiet-seconds", type=float, default=_QUIET_SECONDS, hidden=True, help="Say after so long that no request has come.")
@json_option
def wrap(
    *,
    agent: str,
    arguments: tuple[str, ...],
    mode: str,
    fold: bool,
    threads: str | None,
    thinking: str,
    keep_alive: bool,
    quiet_seconds: float,
    as_json: bool,
) -> None:
    """Start Claude Code or Codex with a gateway of its own; ARGS are those of the program.

    The gateway ends with the program, and its bill is printed then. The exit code is that of the program. If the gateway
    dies, that is said at once: the program can be started again directly, and its session is whole.
    """
    program = shutil.which(agent)
    if program is None:
        raise BadInput(f"{agent} is not installed, or not in PATH", where="pal wrap")
    # The home is found here, so that a wrong one is an error of this command.
    find_home()
    for reason in bypasses(agent, arguments, os.environ, Path.cwd()):
        click.echo(plain(f"pal wrap: {reason}, so that {agent} may go past the gateway; then nothing is recorded or saved"), err=True)
    reading, writing = os.pipe()
    command = [sys.executable, "-P", "-m", "pal.cli", "gateway", "--mode", mode, "--port", "0", "--thinking", thinking]
    gateway = subprocess.Popen(  # noqa: S603 - this program itself
        [
            *command,
            "--wrapped",
            str(writing),
            *(["--fold"] if fold else []),
            *(["--threads", threads] if threads else []),
            *(["--keep-alive"] if keep_alive else []),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        pass_fds=(writing,),
        start_new_session=True,
    )
    os.close(writing)
    with os.fdopen(reading, "rb") as reports:
        address = reports.readline().decode().strip()
        if not address:
            raise BadInput(f"the gateway did not start (exit code {gateway.wait()})", where="pal wrap")
        listening = _Reports(reports, agent, quiet_seconds)
        code = _run([program, *_options(agent, address), *arguments], environment_of(agent, address, os.environ), gateway, agent)
        bill = listening.bill_of(gateway)
    if as_json:
        emit({"agent": agent, "code": code, "gateway": None if bill is None else msgspec.to_builtins(bill)})
    elif bill is not None:
        click.echo(bill_line(bill), err=True)
    click.get_current_context().exit(code)


def environment_of(agent: str, address: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program that should send its requests to an address of this machine."""
    name, path = {"claude": ("ANTHROPIC_BASE_URL", ""), "codex": ("OPENAI_BASE_URL", "/v1")}[agent]
    found = dict(environment) | {name: address + path}
    for key in ("NO_PROXY", "no_proxy"):
        # A proxy of the environment must not get what stays on this machine.
        found[key] = ",".join(filter(None, (environment.get(key, ""), "127.0.0.1")))
    return found


def _options(agent: str, address: str) -> list[str]:
    """The options by which a program gets an address that it does not take from the environment."""
    return ["-c", f'openai_base_url="{address}/v1"'] if agent == "codex" else []


def _run(command: Sequence[str], environment: Mapping[str, str], gateway: "subprocess.Popen[bytes]", agent: str) -> int:
    """Run a program to its end and return its exit code; if the gateway ends before it, say so."""
    ended: queue.SimpleQueue[str] = queue.SimpleQueue()
    # The terminal sends an interrupt to the program too, which decides what it means. To ignore the signal would be inherited.
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        program = subprocess.Popen(command, env=environment)  # noqa: S603 - the program that the user named
        for name, process in (("program", program), ("gateway", gateway)):
            threading.Thread(target=_wait, args=(process, name, ended), daemon=True).start()
        if ended.get() == "gateway":
            click.echo(
                f"pal wrap: the gateway has ended (exit code {gateway.poll()}), so {agent} cannot reach its model any more; leave it and "
                f"go on directly with `{_AGAIN[agent]}`, nothing of its session is lost",
                err=True,
            )
        return program.wait()
    finally:
        signal.signal(signal.SIGINT, before)


def _wait(process: "subprocess.Popen[bytes]", name: str, ended: "queue.SimpleQueue[str]") -> None:
    process.wait()
    ended.put(name)


class _Reports:
    """Reads what the gateway reports, and says if no request has come for some seconds.

    Not in a terminal, where its user may still be typing and the screen is the program's: there the bill at the end says it.
    """

    def __init__(self, reports: BinaryIO, agent: str, quiet_seconds: float) -> None:
        self._reports = reports
        self._said = threading.Timer(quiet_seconds, self._say_quiet, (agent, quiet_seconds))
        self._said.daemon = True
        if not sys.stdin.isatty():
            self._said.start()
        self._line = b""
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        for line in self._reports:
            self._said.cancel()
            if line != ARRIVED:
                self._line = line

    def _say_quiet(self, agent: str, seconds: float) -> None:
        click.echo(f"pal wrap: no request of {agent} has come for {seconds:g} seconds; if it answers, it goes past the gateway", err=True)

    def bill_of(self, gateway: "subprocess.Popen[bytes]") -> GatewayBill | None:
        """Stop the gateway and return its bill; `None` if it had ended before."""
        self._said.cancel()
        if gateway.stdin is not None:
            gateway.stdin.close()
        self._reading.join(_STOP_SECONDS)
        try:
            gateway.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            gateway.kill()
        return msgspec.json.decode(self._line, type=GatewayBill) if self._line else None
