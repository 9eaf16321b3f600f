"""Another model takes over: policies look at what that calls for before it is asked anything."""

from collections.abc import Generator

from palimpsest.core.policy import Answer, Want
from palimpsest.engine.moments import Looked, look
from palimpsest.engine.session import Session
from palimpsest.wire.cards import ModelCard


def switch(session: Session, model: ModelCard) -> Generator[Want, Answer, Looked]:
    """Go on with another model. What the one before reported still says how full the view is; a plan may ask that one once more."""
    previous, used = session.card, session.used
    session.switch(model)
    return (yield from look(session, "switched", previous=previous, used=used))
