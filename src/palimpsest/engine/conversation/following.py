"""Records what is new in a message list that another program owns, and what that program changed in its past."""

from collections.abc import Sequence
from contextlib import suppress

from palimpsest.core.edits import Fold, Insert, named_ids
from palimpsest.core.errors import BadInput
from palimpsest.core.events import TURN, Failed, ModelReplied, Rewound, ViewEdited
from palimpsest.core.events.calls import UNOBSERVED
from palimpsest.core.log.log import Log
from palimpsest.core.log.undo import undo
from palimpsest.engine.conversation.rewinding import RewoundState, go_back, priced
from palimpsest.engine.session import Session
from palimpsest.mirror.bodies import NewMessage, with_call
from palimpsest.mirror.comparing import ListComparison
from palimpsest.mirror.elements import OWNER
from palimpsest.mirror.mirror import Mirror
from palimpsest.wire.json_reading import is_json
from palimpsest.wire.models.cards import WireName


def leading_system_messages(messages: Sequence[object], wire: WireName) -> int:
    """Return how many messages at the beginning of a list are instructions; Anthropic Messages has a field for these."""
    count = 0
    while wire != "anthropic" and count < len(messages) and _role(messages[count]) in ("system", "developer"):
        count += 1
    return count


def _role(message: object) -> object:
    return message.get("role") if is_json(message) else getattr(message, "role", None)


def follow(session: Session, mirror: Mirror, messages: list[object], system: object) -> bool:
    """Append what is new in a list to the log, and return whether there was anything. Raises `BadInput` if a message cannot be read."""
    heads = leading_system_messages(messages, mirror.shape.wire)
    leading, listed = messages[:heads], messages[heads:]
    comparison = mirror.compare(listed)
    head = mirror.head(system, leading)
    if head is None and not comparison.new and not comparison.is_rewritten:
        mirror.adopt(listed, comparison, system, leading)
        return False
    log, rest, call = session.log, comparison.new, session.log.open_call
    bodies = mirror.bodies(rest) if head is None and not comparison.is_rewritten else []
    if not (bodies and isinstance(bodies[0], ModelReplied)):
        end_call(log)
        call = None
    if comparison.is_rewritten:
        rest = _record_rewrite(session, mirror, comparison, messages)
        # Going back may have changed the head too.
        head = mirror.head(system, leading)
    if head is not None:
        mirror.take(log.append(head))
    if not bodies:
        bodies = mirror.bodies(rest)
    for body in with_call(bodies, call, session.card.name):
        mirror.take(log.append(body))
    mirror.adopt(listed, comparison, system, leading)
    return True


def end_call(log: Log) -> None:
    """Record that the reply to the open call never became known, if a call is open."""
    if log.open_call is not None:
        log.append(Failed("call", UNOBSERVED, "the reply to this request was not observed", call=log.open_call, purpose=TURN))


def _record_rewrite(session: Session, mirror: Mirror, comparison: ListComparison, messages: list[object]) -> tuple[NewMessage, ...]:
    """Record a change of the past as the owner's edit, and return the messages that are new after it."""
    log = session.log
    rewrite = mirror.rewrite(comparison, log.view)
    if rewrite.back_to is not None:
        states = go_back(session, rewrite.back_to, f"the list goes on after message {comparison.prefix}")
        mirror.restart(log.events(), kept=comparison.prefix)
        if session.cheapest is not None and len(states) > 1:
            _choose_state(session, mirror, comparison, messages, states)
        return rewrite.rest
    if _replaces(rewrite.body) and _uncover(log, mirror.folded_over(comparison)):
        rewrite = mirror.rewrite(comparison, log.view)
    body = rewrite.body
    if body is not None:
        mirror.take(log.append(priced(session, body) if isinstance(body, ViewEdited) else body, foreign=True))
    return rewrite.rest


def _choose_state(
    session: Session, mirror: Mirror, comparison: ListComparison, messages: list[object], states: Sequence[RewoundState]
) -> None:
    """Leave out the newest edits that were made again if the list without them is still cached, and cheaper to send now."""
    heads = leading_system_messages(messages, mirror.shape.wire)
    leading, listed = messages[:heads], messages[heads:]
    shown = [mirror.with_prefix(state.view, listed, comparison) for state in states]
    lists = {number: [*leading, *found] for number, found in enumerate(shown) if found is not None}
    if session.cheapest is None or len(lists) < 2:
        return
    chosen = [*lists][session.cheapest([*lists.values()])]
    if chosen < len(states) - 1:
        why = f"{len(states) - 1 - chosen} edits are not made again, because the list is still cached without them"
        session.log.append(Rewound(states[chosen].event, why=why))


def _replaces(body: object) -> bool:
    return isinstance(body, ViewEdited) and (not body.edits or any(isinstance(edit, Fold | Insert) for edit in body.edits))


def _uncover(log: Log, names: frozenset[str]) -> bool:
    """Undo our folds, newest first, that hide or keep one of these items; a fold of messages that are gone says what is no longer true."""
    undone = False
    for event in reversed([*log.events()]):
        body = event.body
        if not isinstance(body, ViewEdited) or body.by == OWNER or not _replaces(body):
            continue
        if names.issubset(log.view.ids) and names.isdisjoint(name for edit in body.edits for name in named_ids(edit)):
            continue
        # An edit that is undone already, by itself or with another one, is no error.
        with suppress(BadInput):
            undo(log, event.seq, why="the list was changed where it was folded")
            undone = True
    return undone
