"""Events that the terminal shows as one line, and the words of that line."""

from palimpsest.apps.shown_text import saved_note_line
from palimpsest.apps.terminal.screen.blocks import NoticeBlock
from palimpsest.core.events import (
    ChildEnded,
    ChildOpened,
    EditUndone,
    Failed,
    FilesSnapshotted,
    HookRan,
    InputWithdrawn,
    ModeChanged,
    ModelSwitched,
    NoteForgotten,
    NoteSaved,
    Noticed,
    Pinned,
    ProcessEnded,
    ProcessStarted,
    ProfileChanged,
    Recalled,
    Rewound,
    Titled,
    TurnEnded,
)
from palimpsest.core.events.calls import EventBody
from palimpsest.core.format.texts import cost_text

_SLOW_SNAPSHOT_MS = 5_000
# Reasons for which a turn ends that the last reply does not say itself.
_STOPS = {
    "max_tokens": "the reply was cut off: it reached its limit of tokens",
    "refusal": "the model refused to answer",
    "blocked": "a hook blocked the prompt",
    "max_calls": "the limit of model calls was reached",
    "max_tools": "the limit of tool calls was reached",
    "max_seconds": "the limit of seconds was reached",
    "max_usd": "the limit of US dollars was reached",
    "loop": "the model repeated the same calls with the same results",
    "empty": "the model replied with nothing",
    "written_call": "the model wrote a tool call as text; nothing was run",
    "max_total_tokens": "the limit of tokens was reached",
    "price_unknown": "the limit of US dollars cannot be kept: what a call cost is not known; limit tokens, or write a card with its prices",
}


def notice_of(body: EventBody) -> NoticeBlock | None:
    """Return the line of an event; `None` for events that the screen does not show."""
    match body:
        case HookRan(notice=notice, failure=failure, hook=hook) if notice:
            return NoticeBlock(notice if failure else f"hook {hook}: {notice}", "warning" if failure else "info")
        case Noticed(text=text):
            return NoticeBlock(text, "warning")
        case InputWithdrawn(by=by, why=why):
            return NoticeBlock(f"the {by} took the message back{': ' + why if why else ''}", "warning")
        case Failed(what=what, message=message, by=by):
            return NoticeBlock(f"{by or what} failed: {message}", "error")
        case TurnEnded(stop=stop) if stop in _STOPS:
            return NoticeBlock(_STOPS[stop], "warning")
        case FilesSnapshotted(took_ms=took_ms) if took_ms >= _SLOW_SNAPSHOT_MS:
            return NoticeBlock(f"keeping the state of the files took {took_ms / 1000:.1f} s (files.snapshots turns it off)")
        case _:
            return _change(body) or _work(body)


def _change(body: EventBody) -> NoticeBlock | None:
    """Return the line of an event by which the session works differently from now on."""
    match body:
        case ModelSwitched(model=model, previous=previous):
            return NoticeBlock(f"model {model}" + (f", was {previous}" if previous else ""))
        case ProfileChanged(profile=profile, previous=previous):
            return NoticeBlock(f"profile {profile}" + (f", was {previous}" if previous else ""))
        case ModeChanged(mode=mode, previous=previous) if previous:
            return NoticeBlock(f"mode {mode}, was {previous}")
        case EditUndone(event=event):
            return NoticeBlock(f"edit {event} was undone")
        case Rewound(to=to, files=files):
            return NoticeBlock(f"went back to event {to}" + (", with the files" if files else ""))
        case Pinned(ids=ids, paths=paths, on=on):
            return NoticeBlock(f"{'pinned' if on else 'unpinned'} {', '.join((*ids, *paths))}")
        case Titled(title=title, by=""):
            return NoticeBlock(f"title: {title}")
        case _:
            return None


def _work(body: EventBody) -> NoticeBlock | None:
    """Return the line of an event about work beside the conversation."""
    match body:
        case ChildOpened(nickname=nickname, role=role, resumed=resumed):
            return NoticeBlock(f"sub-agent {nickname} ({role}) {'goes on' if resumed else 'starts'}")
        case ChildEnded(session=session, status=status, cost_usd=usd):
            return NoticeBlock(f"sub-agent in {session} ended: {status}, {cost_text(usd)}", "info" if status == "completed" else "warning")
        case ProcessStarted(process=process, command=command):
            return NoticeBlock(f"process {process} runs in the background: {command}")
        case ProcessEnded(process=process, exit=code, why=why):
            return NoticeBlock(f"process {process} ended" + (f" with {code}" if code is not None else "") + (f": {why}" if why else ""))
        case Recalled(notes=notes) if notes:
            return NoticeBlock(f"recalled {', '.join(notes)}")
        case NoteSaved() as saved:
            return NoticeBlock(saved_note_line(saved))
        case NoteForgotten(name=name, how=how):
            return NoticeBlock(f"note {name} {how}")
        case _:
            return None
