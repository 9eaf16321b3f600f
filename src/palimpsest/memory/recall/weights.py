"""The learned weights of the features, made by the command that the table names."""

from collections.abc import Mapping
from typing import Final

WEIGHTS: Final[Mapping[str, float]] = {
    "match": -0.26,
    "match_z": 0.21,
    "cover": 0.4,
    "cover_squared": 0.07,
    "rarest": 0.66,
    "cover_with_previous": 1.3,
    "cover_window": 0.71,
    "pairs": 0.94,
    "previous": 0.19,
    "following": 0.44,
    "second_previous": 1.08,
    "second_following": 0.48,
    "previous_if_asked": 1.57,
    "session_sum": 0.47,
    "session_cover": 1.82,
    "session_best": 1.19,
    "distance": -0.3,
    "speaker": 2.35,
    "asks": -0.63,
    "after_question": 0.17,
    "length": 0.06,
    "number": 0.76,
    "place": -0.33,
    "month": 2.46,
}
TRAINED_ON: Final = ""
