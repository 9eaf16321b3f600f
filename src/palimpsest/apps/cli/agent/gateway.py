"""`pal gateway`: passes the requests of other agents on, records and prices them, and edits what they show."""

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import click
import msgspec

from palimpsest.apps.cli.opening.home import find_home
from palimpsest.apps.cli.output.values import emit, json_option
from palimpsest.apps.shown_text import dollars, plain, unfiltered
from palimpsest.audit.pricing.two_bills import GatewayBill
from palimpsest.core.errors import BadInput
from palimpsest.core.format.texts import counted
from palimpsest.stores.home import Home

if TYPE_CHECKING:
    from palimpsest.apps.gateway.gateway import RequestReport
    from palimpsest.apps.gateway.recorded import Mode
    from palimpsest.apps.gateway.thinking import ThinkingMode
    from palimpsest.apps.gateway.threads import ThreadMode

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
        from palimpsest.apps.gateway.forwarding import Upstreams, require_other, upstream_of  # it imports the web server
        from palimpsest.apps.gateway.gateway import Gateway
        from palimpsest.apps.gateway.serving import listening, serve, stopped_by_signals
        from palimpsest.apps.gateway.workers import ProcessWorkers
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
        workers = start(home) if isinstance(home, Home) else None
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
