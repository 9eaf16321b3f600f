"""How commands take a session on the command line, open it, and count its tokens."""

import click
from click.shell_completion import CompletionItem

from palimpsest.apps.cli.home import AnyHome, SessionLocation
from palimpsest.apps.cli.output import plain
from palimpsest.core.errors import BadInput, StoreError
from palimpsest.core.log.log import Log
from palimpsest.core.log.recovery import recover
from palimpsest.core.ports import Blobs
from palimpsest.core.tokens.budget import Budget
from palimpsest.core.tokens.counter import TokenCounter
from palimpsest.core.tokens.estimate import Calibration
from palimpsest.core.tokens.sizes import palimpsest_size, tool_list_size
from palimpsest.core.view import View
from palimpsest.policies.budgets import palimpsest_budget
from palimpsest.wire.models.cards import CARDS, ModelCard, card

_SHOWN = 50


def complete_session(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of sessions that begin so, newest first; a home that cannot be read completes to nothing."""
    from palimpsest.apps.cli.home import find_home  # noqa: PLC0415 - only when somebody presses tab
    from palimpsest.core.errors import PalimpsestError  # noqa: PLC0415 - the same

    try:
        stats = sorted(find_home().store.stats(), key=lambda stat: -stat.changed)
    except PalimpsestError:
        return []
    return [CompletionItem(stat.session) for stat in stats if stat.session.startswith(incomplete)][:_SHOWN]


session_argument = click.argument("session", metavar="ID", shell_complete=complete_session)


_USUAL_WINDOW, _USUAL_REPLY = 200_000, 32_000


def open_log(found: SessionLocation, *, write: bool = False, whole: bool = False) -> Log:
    """The session, for reading or held for writing; `whole` is for commands that show what the log says, and checks every line.

    A model call that a crash left without an outcome is closed before anything is written: until then the log takes no edit.
    """
    return close_open_call(Log.open(found.store, found.session, found.clock, write=write, whole=whole), write=write)


def close_open_call(log: Log, *, write: bool = True) -> Log:
    """The same log; one that is held for writing without the model call that a crash left open in it."""
    try:
        if write and log.open_call is not None:
            recover(log)
    except BaseException:
        log.close()
        raise
    return log


def cards_of(home: AnyHome) -> tuple[ModelCard, ...]:
    """All cards of a home; when the user's own cannot be read, that is said and the built-in ones do."""
    own = own_cards_of(home)
    return CARDS if own is None else home.cards()


def own_cards_of(home: AnyHome) -> tuple[ModelCard, ...] | None:
    """The user's own cards; nothing, and a line that says why, when they cannot be read."""
    try:
        return home.own_cards()
    except (BadInput, StoreError) as error:
        click.echo(plain(f"pal: {error}; until this is mended only the built-in cards are used"), err=True)
        return None


def counter_of(view: View, calibration: Calibration | None = None) -> TokenCounter:
    """Weighs items the way the model of a view counts, as far as that is known."""
    learned = Calibration() if calibration is None else calibration
    return TokenCounter(palimpsest_size, learned.factor(view.model))


def budget_of(model: str, cards: tuple[ModelCard, ...], window: int | None = None) -> Budget:
    """The room of a model; one that has no card is taken for a usual one."""
    try:
        found = card(model, cards, window=window)
    except BadInput:
        return palimpsest_budget(window or _USUAL_WINDOW, _USUAL_REPLY)
    return palimpsest_budget(found.window, found.reply, input_limit=found.input_limit)


def tools_tokens(view: View, blobs: Blobs, counter: TokenCounter) -> int:
    """What the tools of the last call take of the window."""
    call = view.call
    if call is None or not call.tools or call.tools not in blobs:
        return 0
    return counter.scaled(tool_list_size(blobs.get(call.tools)))


def weigh(view: View, log: Log, found: SessionLocation) -> int:
    """Tokens of a view and of the tools that go with it, weighed whole: what a provider reported was said of another view."""
    counter = counter_of(view, log.ledger.calibration)
    return counter.total(view) + tools_tokens(view, found.blobs, counter)


def require_room(after: View, log: Log, found: SessionLocation, cards: tuple[ModelCard, ...]) -> tuple[int, int]:
    """Tokens of a view to come and the room there is; one that does not fit is refused with both numbers."""
    tokens = weigh(after, log, found)
    budget = budget_of(after.model, cards)
    room = budget.block_at or budget.window
    if tokens >= room:
        numbers = f"it would have {tokens:,} tokens, and of {budget.window:,} the model's window takes {room:,}"
        raise BadInput(f"the view after this would not fit: {numbers}, so {tokens - room + 1:,} are too many", where=found.session)
    return tokens, room
