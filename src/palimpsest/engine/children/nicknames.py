"""Nicknames of sub-agents: names of trees and birds, each used once before any of them returns with a number."""

from collections.abc import Collection
from itertools import count
from typing import Final

NAMES: Final = (
    *("Acacia", "Alder", "Almond", "Apple", "Ash", "Aspen", "Avocet", "Balsam", "Banyan", "Baobab", "Barbet", "Bay", "Beech", "Birch"),
    *("Bittern", "Bluebird", "Brambling", "Bulbul", "Bunting", "Camellia", "Cedar", "Cherry", "Chestnut", "Citron", "Cormorant", "Crake"),
    *(
        "Crane",
        "Cuckoo",
        "Curlew",
        "Cypress",
        "Dipper",
        "Dogwood",
        "Dove",
        "Dunlin",
        "Dunnock",
        "Egret",
        "Eider",
        "Elder",
        "Elm",
    ),
    *("Finch", "Fir", "Gannet", "Ginkgo", "Goldcrest", "Goshawk", "Grebe", "Hawthorn", "Hazel", "Heron", "Hickory", "Holly", "Hoopoe"),
    *("Hornbeam", "Ibis", "Jackdaw", "Juniper", "Kestrel", "Kingfisher", "Kite", "Lapwing", "Larch", "Lark", "Laurel", "Linden", "Linnet"),
    *("Magnolia", "Maple", "Martin", "Merlin", "Mulberry", "Myrtle", "Nightjar", "Nutmeg", "Oak", "Olive", "Oriole", "Osprey", "Pear"),
    *("Pine", "Pipit", "Plover", "Poplar", "Quince", "Redstart", "Robin", "Rowan", "Siskin", "Spruce", "Starling", "Swift", "Sycamore"),
    *("Tern", "Thrush", "Wagtail", "Walnut", "Warbler", "Willow", "Wren", "Yew"),
)
_SUFFIXES: Final = {1: "st", 2: "nd", 3: "rd"}
_TEENS: Final = range(11, 14)


def pick_nickname(used: Collection[str], chance: float) -> str:
    """Return a nickname that is not used; `chance` is a random number from 0 to 1.

    Once all names are used, the names of the next round are `Alder the 2nd` and so on.
    """
    for number in count(1):
        free = [name for name in (numbered(name, number) for name in NAMES) if name not in used]
        if free:
            return free[min(int(chance * len(free)), len(free) - 1)]
    raise AssertionError("there is always a next round")


def numbered(name: str, number: int) -> str:
    """Return a name as it is used in a round, counted from 1."""
    if number == 1:
        return name
    suffix = "th" if number % 100 in _TEENS else _SUFFIXES.get(number % 10, "th")
    return f"{name} the {number}{suffix}"
