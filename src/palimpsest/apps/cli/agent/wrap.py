"""`pal wrap`: starts another agent with a gateway of its own, and stops the gateway with it."""

import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final

import click
import msgspec

from palimpsest.apps.cli.agent.bypasses import bypasses
from palimpsest.apps.cli.agent.gateway import ARRIVED, bill_line, fold_option, mode_option, thinking_option, threads_option
from palimpsest.apps.cli.opening.home import find_home
from palimpsest.apps.cli.output.values import emit, json_option
from palimpsest.apps.shown_text import plain
from palimpsest.audit.pricing.two_bills import GatewayBill
from palimpsest.core.errors import BadInput

# How each program goes on with its session without the gateway.
_AGAIN: Final = {"claude": "claude --continue", "codex": "codex resume --last"}
_STOP_SECONDS: Final = 15
# Programs that run without a terminal ask their model at once.
_QUIET_SECONDS: Final = 20
_EXAMPLES = """\b
Examples:
  pal wrap claude
  pal wrap claude --mode palimpsest -- --continue
  pal wrap codex -- exec "say hello\""""


@click.command(epilog=_EXAMPLES)
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
    command = [sys.executable, "-P", "-m", "palimpsest.apps.cli", "gateway", "--mode", mode, "--port", "0", "--thinking", thinking]
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
