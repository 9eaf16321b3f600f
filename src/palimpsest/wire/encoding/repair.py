"""Call ids of a request, and the last check before sending: every call has one result after it, and every result a call before it."""

import re
from collections import deque
from collections.abc import Callable
from hashlib import sha1, sha256
from itertools import count
from typing import Literal, TypeAlias

from palimpsest.core.items import Form, Item, Text, ToolCall, ToolResult
from palimpsest.wire.encoding.fragments import Fragment, Place
from palimpsest.wire.encoding.tools import NAMELESS
from palimpsest.wire.request import Case, Touch

IdRule: TypeAlias = Literal["any", "claude", "mistral"]
"""Which letters and lengths of call ids a server accepts."""

_OPEN: dict[Form, tuple[Case, bool]] = {
    "json": ("open_call", False),
    "free": ("open_free_call", True),
    "shell": ("open_shell_call", True),
    "search": ("open_search_call", False),
}
_ORPHAN: dict[Form, tuple[Case, bool]] = {
    "json": ("orphan_result", True),
    "free": ("orphan_free_result", True),
    "shell": ("orphan_result", True),
    "search": ("orphan_search_result", False),
}
_PREFIX: dict[Form, str] = {"json": "fco", "shell": "fco", "free": "ctco", "search": "tso"}
_NAMESPACE = bytes.fromhex("90d38d3e6a5b4d52bfe22f1e634bfac4")
_NOT_CLAUDE = re.compile(r"[^a-zA-Z0-9_-]")
_NOT_MISTRAL = re.compile(r"[^a-zA-Z0-9]")
_MISTRAL_LENGTH = 9


def repair(fragments: list[Fragment], mend: "Mend") -> tuple[list[Fragment], tuple[Touch, ...]]:
    """The fragments with every pair whole, and what had to be touched; a list without fault comes back as it is."""
    waiting: set[str] = set()
    sent: set[str] = set()
    call, result = Place.CALL, Place.RESULT
    for fragment in fragments:
        key = fragment.key
        if not key:
            continue
        if fragment.place == call:
            if fragment.wire_id in sent:
                break
            sent.add(fragment.wire_id)
            waiting.add(key)
        elif fragment.place == result:
            if key not in waiting:
                break
            waiting.remove(key)
    else:
        if not waiting:
            return fragments, ()
    return _Repair(mend).run(fragments)


class Mend:
    """How a wire makes what repair needs: a fragment under another id, and the answer to a call that has none."""

    def __init__(self, make: Callable[[Item, str], Fragment], interrupted: str, scrub: IdRule) -> None:
        self.make = make
        self.interrupted = interrupted
        self.scrub = scrub

    def answer(self, call: Fragment) -> Fragment:
        """The result of a call that nobody answered; it takes the id of the item that asked."""
        content = call.item.content
        ref = inserted_id(call.form, content.ref)
        call_id = call.key.partition(":")[2]
        parts = () if call.form == "search" else (Text(self.interrupted),)
        return self.make(Item(call.item.id, "result", ToolResult(call_id, parts, error=True, form=call.form, ref=ref)), call.wire_id)


class _Repair:
    """One pass over fragments with a fault: queues of open calls by key, in the order of the calls."""

    def __init__(self, mend: Mend) -> None:
        self.mend = mend
        self.out: list[Fragment] = []
        self.touches: list[Touch] = []
        self.waiting: dict[str, deque[int]] = {}
        self.open: dict[int, Fragment] = {}
        self.sent: set[str] = set()

    def run(self, fragments: list[Fragment]) -> tuple[list[Fragment], tuple[Touch, ...]]:
        for fragment in fragments:
            if not fragment.key:
                self.out.append(fragment)
            elif fragment.place == Place.CALL:
                self.call(fragment)
            else:
                self.result(fragment)
        for call in self.open.values():
            case, bug = _OPEN[call.form]
            self.touches.append(Touch(case, call.item.id, call.wire_id, bug))
        mended: list[Fragment] = []
        for index, fragment in enumerate(self.out):
            mended.append(fragment)
            if index in self.open:
                mended.append(self.mend.answer(fragment))
        return mended, tuple(self.touches)

    def call(self, fragment: Fragment) -> None:
        if fragment.wire_id in self.sent:
            other = distinct(fragment.wire_id, fragment.key, self.sent, self.mend.scrub)
            self.touches.append(Touch("renamed_call", fragment.item.id, other))
            fragment = self.mend.make(fragment.item, other)
        self.sent.add(fragment.wire_id)
        self.waiting.setdefault(fragment.key, deque()).append(len(self.out))
        self.open[len(self.out)] = fragment
        self.out.append(fragment)

    def result(self, fragment: Fragment) -> None:
        queue = self.waiting.get(fragment.key)
        if not queue:
            case, bug = _ORPHAN[fragment.form]
            if queue is not None:
                case, bug = "duplicate_result", True
            self.touches.append(Touch(case, fragment.item.id, fragment.wire_id, bug))
            return
        # A result that was given a name before answers the call of that name; any other the oldest open one.
        index = next((each for each in queue if self.open[each].wire_id == fragment.wire_id), queue[0])
        queue.remove(index)
        call = self.open.pop(index)
        if call.wire_id != fragment.wire_id:
            fragment = self.mend.make(fragment.item, call.wire_id)
        self.out.append(fragment)


def scrubbed(call_id: str, rule: IdRule) -> str:
    """A call id in the letters that a provider accepts."""
    match rule:
        case "any":
            return call_id or NAMELESS
        case "claude":
            return _NOT_CLAUDE.sub("_", call_id) or NAMELESS
        case "mistral":
            return _NOT_MISTRAL.sub("", call_id)[:_MISTRAL_LENGTH].ljust(_MISTRAL_LENGTH, "0")


def distinct(wire_id: str, key: str, taken: set[str], rule: IdRule) -> str:
    """Another id for a call whose own is taken, the same one whenever the same calls are sent."""
    if rule == "mistral":
        candidates = (sha256(f"{key}:{number}".encode()).hexdigest()[:_MISTRAL_LENGTH] for number in count(2))
    else:
        candidates = (f"{wire_id}_{number}" for number in count(2))
    return next(candidate for candidate in candidates if candidate not in taken)


def inserted_id(form: Form, call_item: str) -> str:
    """The provider-side id of an inserted output: a name-based UUID of the call's, so that it is the same each time."""
    if not call_item:
        return ""
    prefix = _PREFIX[form]
    digest = bytearray(sha1(_NAMESPACE + f"{prefix}:{call_item}".encode(), usedforsecurity=False).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{prefix}_{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def given_id(call: ToolCall, rule: IdRule) -> str:
    """The provider's own id of a call, if it is kept beside the recorded one and these letters are accepted."""
    return call.given if call.given and scrubbed(call.given, rule) == call.given else ""


class GivenIds:
    """Encodes calls and their results under the provider's own ids, and keeps those fragments while they are in the view.

    The first call of a request that was given an id carries it, unless a call is recorded under it: so adding calls changes none before.
    """

    def __init__(self, make: Callable[[Item, str], Fragment]) -> None:
        self._make = make
        self.kept: dict[int, Fragment] = {}

    def apply(self, fragments: list[Fragment]) -> list[Fragment]:
        """The fragments with calls and results under the ids they are sent by; a list without given ids comes back as it is."""
        given = [fragment for fragment in fragments if fragment.given]
        if not given:
            self.kept = {}
            return fragments
        taken = {fragment.wire_id for fragment in fragments if fragment.place == Place.CALL and fragment.key}
        carried: dict[str, str] = {}
        for fragment in given:
            if fragment.given not in taken:
                taken.add(fragment.given)
                carried[fragment.key] = fragment.given
        kept, self.kept = self.kept, {}
        return [self._under(fragment, carried[fragment.key], kept) if fragment.key in carried else fragment for fragment in fragments]

    def adopt(self, other: "GivenIds") -> None:
        """Take over what another one keeps."""
        self.kept = dict(other.kept)

    def _under(self, fragment: Fragment, name: str, kept: dict[int, Fragment]) -> Fragment:
        found = kept.get(id(fragment.item))
        if found is None or found.wire_id != name:
            found = self._make(fragment.item, name)
        self.kept[id(fragment.item)] = found
        return found
