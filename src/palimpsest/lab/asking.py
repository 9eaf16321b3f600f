"""Asks a real model for the summaries of a replay, and remembers how often that failed and why."""

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import ModelReplied
from palimpsest.core.policy import Answer, Ask, Want
from palimpsest.engine.flow import answer_without_model
from palimpsest.engine.session import Session
from palimpsest.lab.stage import Asking


class Asked:
    """The requests that one profile sent to a model; a policy that gets no answer goes on without, so that nobody else would tell."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self.requests = 0
        self.failed = 0
        self.failure = ""

    def __call__(self, session: Session, want: Ask) -> ModelReplied:
        """What the model says."""
        self.requests += 1
        try:
            return self._asking(session, want)
        except PalimpsestError as error:
            self.failed += 1
            self.failure = self.failure or error.message
            raise

    def answer(self, session: Session, want: Want) -> Answer:
        """What a plan wants, of the model or of the world."""
        return self(session, want) if isinstance(want, Ask) else answer_without_model(session, want)
