"""Lets queued input enter the view of a session, unless a hook withdraws it."""

from typing import NamedTuple, Protocol

from palimpsest.core.events import UserSaid, UserTyped
from palimpsest.core.items import Part
from palimpsest.engine.loop.context import ContextStating
from palimpsest.engine.loop.hooked import SessionHooks, state_hook_texts
from palimpsest.engine.session import Session


class Recalling(Protocol):
    """Recalls what outlives a session for a prompt, before the prompt enters the view."""

    async def recall(self, parts: tuple[Part, ...]) -> None:
        """Record what was recalled for a prompt; it never fails."""
        ...


class NoRecall:
    """Recalls nothing."""

    async def recall(self, parts: tuple[Part, ...]) -> None:
        """Do nothing."""


class Accepted(NamedTuple):
    """How many queued inputs entered the view, and how many were withdrawn."""

    said: int = 0
    withdrawn: int = 0


async def accept_input(
    session: Session, context: ContextStating, hooks: SessionHooks, recalling: Recalling | None = None, *, steering: bool
) -> Accepted:
    """Let queued input enter the view, oldest first, each followed by what it mentions and what hooks add.

    What is recalled for a prompt stands before it; steering recalls nothing, since a turn is under way.
    """
    said = withdrawn = 0
    # Input may be typed while a hook runs, so the queue is read again each time.
    while queued := session.log.inbox:
        seq = queued[0]
        parts = typed_parts(session, seq)
        may_enter, texts = await hooks.accepts(session, seq, parts)
        if may_enter:
            if recalling is not None and not steering:
                await recalling.recall(parts)
            session.log.append(UserSaid(session.profile.framed_input(parts), typed=seq, steering=steering))
            context.mention(parts)
            state_hook_texts(session, "user_prompt", texts)
            said += 1
        else:
            withdrawn += 1
    return Accepted(said, withdrawn)


def typed_parts(session: Session, seq: int) -> tuple[Part, ...]:
    """The parts of queued input."""
    body = session.log.event(seq).body
    return body.parts if isinstance(body, UserTyped) else ()


def queued_tokens(session: Session) -> int:
    """Tokens of all queued input."""
    return sum(session.counter.content(part) for seq in session.log.inbox for part in typed_parts(session, seq))
