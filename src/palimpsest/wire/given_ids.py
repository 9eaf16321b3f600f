"""Call ids of a request: the provider's own where it is unique in the request, the recorded one elsewhere."""

from collections.abc import Callable

from palimpsest.core.items import Item, ToolCall
from palimpsest.wire.fragments import Fragment, Place
from palimpsest.wire.repair import IdRule, scrubbed


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
