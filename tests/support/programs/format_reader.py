"""A reader written from docs/format.md alone: it knows JSON and SHA-256 and nothing of the product."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Shown:
    """An item of the view."""

    id: str
    kind: str
    content: Json
    mask: Json | None = None


@dataclass
class State:
    """A view in the making."""

    head: list[Shown] = field(default_factory=list)
    items: list[Shown] = field(default_factory=list)
    facts: dict[str, tuple[str, str]] = field(default_factory=dict)
    notes: str = ""
    pins: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    epoch: int = 0
    reported: int | None = None
    model: str = ""
    mode: str = ""
    profile: str = ""

    def stated(self) -> dict[str, tuple[str, str]]:
        """The facts that count as stated: not those whose item has a mask of the form shown."""
        masked = {item.id for item in self.items if item.mask is not None and item.mask["form"] == "shown"}
        return {source: fact for source, fact in self.facts.items() if fact[1] not in masked}

    def forget(self, gone: set[str]) -> None:
        """Facts stated by items that are gone are forgotten."""
        self.facts = {source: fact for source, fact in self.facts.items() if fact[1] not in gone}


@dataclass
class Reader:
    """One log, its base if it is a fork, and the view at its tip."""

    fetch: Callable[[str], bytes]
    session: str
    events: dict[int, Json] = field(default_factory=dict)
    link: str = ""

    def __post_init__(self) -> None:
        for line in self._lines():
            event = json.loads(line)
            if not self.events and event["body"].get("base"):
                self._open_base(event["body"]["base"])
            assert event["prev"] == self.link, f"the chain breaks at event {event['seq']}"
            digest = event.get("digest") or sha256(line[line.index(b',"body":') + 8 : line.rindex(b"}")]).hexdigest()
            linked = "\n".join([event["prev"], str(event["seq"]), str(event["parent"]), str(event["at"]), digest])
            self.link = sha256(linked.encode()).hexdigest()
            self.events[event["seq"]] = event
        self.tip = max(self.events)

    def _lines(self) -> Iterator[bytes]:
        whole = self.fetch(self.session).partition(b"\0")[0]
        yield from (line for line in whole[: whole.rfind(b"\n") + 1].split(b"\n") if line)

    def _open_base(self, place: Json) -> None:
        base = Reader(self.fetch, place["session"])
        self.events = {seq: event for seq, event in base.events.items() if seq <= place["seq"]}
        self.link = place["link"]

    def along(self) -> list[Json]:
        found: list[Json] = []
        seq = self.tip
        while seq >= 0:
            found.append(self.events[seq])
            seq = self.events[seq]["parent"]
        return found[::-1]

    def state(self) -> State:
        """What all events of the path lead to."""
        undone: dict[int, set[int]] = {}
        for event in self.along():
            body = event["body"]
            if body["type"] == "edit_undone":
                undone.setdefault(body["event"], set()).update(body.get("edits") or range(1000))
        state = State()
        for event in self.along():
            body = event["body"]
            state.items += _brought(event) if body["type"] != "context_stated" else []
            _TAKE.get(body["type"], _nothing)(state, event["seq"], body)
            for index, edit in enumerate(body["edits"] if body["type"] == "view_edited" else ()):
                if index not in undone.get(event["seq"], set()):
                    before = {item.id for item in state.items}
                    state.items = self._edited(state.items, event["seq"], index, edit)
                    state.held |= _held(edit)
                    if edit["type"] == "fold":
                        state.forget(before - {item.id for item in state.items})
            if body["type"] == "view_edited" and event["seq"] not in undone:
                state.reported = body.get("tokens_after") or state.reported
        return state

    def view(self) -> list[Shown]:
        """Head and items together."""
        state = self.state()
        return state.head + state.items

    def _edited(self, items: list[Shown], seq: int, index: int, edit: Json) -> list[Shown]:
        match edit["type"]:
            case "mask" | "unmask":
                cover = {"text": "", "form": "shown"} | edit if edit["type"] == "mask" else None
                return [replace(item, mask=cover) if item.id in edit["ids"] else item for item in items]
            case "fold":
                ids = [item.id for item in items]
                if edit["first"] not in ids or edit["last"] not in ids or ids.index(edit["last"]) < ids.index(edit["first"]):
                    return items
                first, last = ids.index(edit["first"]), ids.index(edit["last"])
                run = {item.id: item for item in items[first : last + 1]}
                return [*items[:first], *_made(seq, index, edit.get("into", ()), run), *items[last + 1 :]]
            case _:
                ids = [item.id for item in items]
                place = ids.index(edit["before"]) if edit.get("before") in ids else len(ids)
                absent = {piece["id"]: self._first(piece["id"]) for piece in edit["contents"] if piece["type"] == "keep"}
                made = _made(seq, index, edit["contents"], {name: item for name, item in absent.items() if name not in ids})
                return [*items[:place], *made, *items[place:]]

    def _first(self, item_id: str) -> Shown:
        seq, *rest = (int(number) for number in item_id.split("."))
        if len(rest) == 1:
            return _brought(self.events[seq])[rest[0]]
        edit = self.events[seq]["body"]["edits"][rest[0]]
        put = (edit.get("into") or edit.get("contents"))[rest[1]]
        return Shown(item_id, put["kind"], put["content"])

    def texts(self) -> list[str]:
        return [text for text in (_read(item) for item in self.view()) if text is not None]


def _held(edit: Json) -> set[str]:
    """What an edit brings back is held."""
    if edit["type"] == "unmask":
        return set(edit["ids"])
    return {piece["id"] for piece in edit["contents"] if piece["type"] == "keep"} if edit["type"] == "insert" else set()


def _made(seq: int, index: int, into: list[Json], kept: dict[str, Shown]) -> list[Shown]:
    made: list[Shown] = []
    for number, piece in enumerate(into):
        if piece["type"] == "put":
            made.append(Shown(f"{seq}.{index}.{number}", piece["kind"], piece["content"]))
        elif piece["id"] in kept:
            made.append(kept.pop(piece["id"]))
    return made


_KINDS = {"tool_call": "call", "tool_result": "result", "thinking": "thinking"}


def _brought(event: Json) -> list[Shown]:
    body, seq = event["body"], event["seq"]
    pieces: list[tuple[str, Json]] = []
    match body["type"]:
        case "user_said":
            pieces = [("steering" if body.get("steering") else "user", part) for part in body["parts"]]
        case "model_replied" if body.get("purpose", "turn") == "turn":
            pieces = [(_KINDS.get(part["type"], "assistant"), part) for part in body["parts"]]
        case "interrupted" if body.get("purpose", "turn") == "turn":
            arrived = [part for part in body.get("parts", ()) if part["type"] in {"text", "thinking"}]
            pieces = [(_KINDS.get(part["type"], "assistant"), part) for part in arrived]
        case "tool_returned":
            pieces = [("result", {"type": "tool_result"} | body["result"])]
        case "recalled":
            pieces = [("recalled", part) for part in body.get("parts", ())]
        case "context_stated":
            said = [*(body.get("head") or ()), *body.get("items", ())]
            pieces = [("context", {"type": "text", "text": each["text"], "role": each.get("role", "user")}) for each in said]
        case _:
            pass
    return [Shown(f"{seq}.{number}", kind, content) for number, (kind, content) in enumerate(pieces)]


def _read(item: Shown) -> str | None:
    if item.mask is not None and item.mask["form"] == "shown":
        return item.mask["text"] or None
    return _text(item.content)


def _text(content: Json) -> str:
    match content["type"]:
        case "text" | "thinking":
            return str(content["text"])
        case "tool_call":
            return f"{content['tool']} {content['args']}"
        case "tool_result":
            return "\n".join(_text(part) for part in content.get("parts", ()))
        case _:
            return str(content.get("twin", ""))


def _nothing(state: State, seq: int, body: Json) -> None:
    pass


def _opened(state: State, seq: int, body: Json) -> None:
    state.model = body.get("model") or state.model
    state.profile = body.get("profile") or state.profile


def _replied(state: State, seq: int, body: Json) -> None:
    if body.get("purpose", "turn") != "turn":
        return
    usage = body.get("usage", {})
    read = sum(usage.get(part, 0) for part in ("input", "cache_read", "cache_write", "cache_write_long"))
    state.reported = read + usage.get("output", 0) if read else state.reported


def _started(state: State, seq: int, body: Json) -> None:
    if body.get("purpose", "turn") == "turn":
        state.model = body["model"]


def _stated(state: State, seq: int, body: Json) -> None:
    brought = _brought({"seq": seq, "body": body})
    head = body.get("head")
    if head is not None:
        state.epoch += 1
        state.forget({item.id for item in state.head})
        state.head = brought[: len(head)]
        state.held = set()
        state.reported = None
    state.items += brought[len(head or ()) :]
    for item, said in zip(brought, [*(head or ()), *body.get("items", ())], strict=True):
        state.facts[said["source"]] = (said.get("value") or said["text"], item.id)


def _undone(state: State, seq: int, body: Json) -> None:
    state.held |= set(body.get("brings", ()))


def _switched(state: State, seq: int, body: Json) -> None:
    state.model = body["model"]
    state.reported = None


def _changed(state: State, seq: int, body: Json) -> None:
    state.mode = body["mode"]


def _profile(state: State, seq: int, body: Json) -> None:
    state.profile = body["profile"]


def _noted(state: State, seq: int, body: Json) -> None:
    state.notes = body["text"]


def _pinned(state: State, seq: int, body: Json) -> None:
    names = {*body.get("ids", ()), *body.get("paths", ())}
    state.pins = state.pins | names if body.get("on", True) else state.pins - names


_TAKE: dict[str, Callable[[State, int, Json], None]] = {
    "session_opened": _opened,
    "model_replied": _replied,
    "call_started": _started,
    "context_stated": _stated,
    "edit_undone": _undone,
    "model_switched": _switched,
    "mode_changed": _changed,
    "profile_changed": _profile,
    "notes_taken": _noted,
    "pinned": _pinned,
}
