"""Where the items of a followed list stand, after splices in any place."""

from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.events import Event, ForeignNoted, UserSaid
from palimpsest.core.items import Text
from palimpsest.follow.output import FORMAT, Elements, Place, Splice, record_of

# How many items a message adds; or where a splice begins, as a share of the list, how many messages it drops, and how many it keeps.
steps = st.lists(st.one_of(st.integers(0, 3), st.tuples(st.floats(0, 1), st.integers(0, 3), st.integers(0, 2))), max_size=12)


@given(steps)
def test_places_are_those_of_the_elements_counted_from_the_beginning(given_steps: list[int | tuple[float, int, int]]) -> None:
    elements = Elements()
    for seq, step in enumerate(given_steps, 1):
        if isinstance(step, int):
            body = UserSaid(tuple(Text(f"{seq} {part}") for part in range(step)), foreign=record_of(Splice(((f"d{seq}", step),))))
            elements.take(Event(seq, seq - 1, 0, "", body))
            continue
        share, drop, keep = step
        at = round(share * len(elements.known))
        dropped = elements.known[at : at + drop]
        kept = tuple((f"k{seq}.{number}", element.items) for number, element in enumerate(dropped[:keep]))
        elements.take(Event(seq, seq - 1, 0, "", ForeignNoted(FORMAT, foreign=record_of(Splice(at=at, drop=len(dropped), kept=kept)))))
    names = [(index, part, name) for index, element in enumerate(elements.known) for part, name in enumerate(element.items)]
    assert elements.places == {name: Place(index, part, number) for number, (index, part, name) in enumerate(names)}
