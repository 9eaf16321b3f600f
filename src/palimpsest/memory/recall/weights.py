"""The learned weights of the features: the output of `pal memory eval locomo-open.json --fit`."""

from collections.abc import Mapping
from typing import Final

# SHA-256 of the data that the weights were fitted on: the main questions of conversations 26, 30, 41, 42, 43 and 44 of LoCoMo. Scores on it
# are not held out. A weight is the change of a score for one unit of its feature; `features.py` says what each feature is.
TRAINED_ON: Final = "be63ebc41010b5c70656f89f8d3dd3033aec0b3f697bbb4f5c6602505cff8038"
# Of each of these conversations 12 digits of the SHA-256 of its texts, so that they are known in other files too.
TRAINED_CONVERSATIONS: Final = frozenset({"86886f206598", "1b2d9e73eb42", "a4afe905eb00", "9a09615782ba", "967f19de5c97", "12c3440c8574"})
WEIGHTS: Final[Mapping[str, float]] = {
    "match": -0.1287,
    "cover": 0.5518,
    "rarest": 0.4571,
    "cover_with_previous": 1.2514,
    "window": 1.9135,
    "pairs": 1.6309,
    "previous": -0.6755,
    "following": -0.1775,
    "second_previous": 1.0482,
    "second_following": 0.4905,
    "previous_if_asked": 1.8984,
    "session_match": 1.6552,
    "session_cover": 0.8192,
    "session_best": 1.0591,
    "distance": -0.3031,
    "speaker": 2.6386,
    "asks": -0.4782,
    "after_question": -0.004,
    "length": 0.255,
    "number": 0.8768,
    "place": -0.2778,
    "month": 4.218,
}
# The same with embeddings: `pal memory eval locomo-open.json --fit --embed`, wordllama 0.4.0.
SIMILAR_WEIGHTS: Final[Mapping[str, float]] = {
    "match": -0.4291,
    "cover": 0.6212,
    "rarest": 0.1077,
    "cover_with_previous": 1.3242,
    "window": 0.7615,
    "pairs": 1.5399,
    "previous": -1.0256,
    "following": -0.2656,
    "second_previous": 0.9856,
    "second_following": 0.3734,
    "previous_if_asked": 1.8903,
    "session_match": 1.5075,
    "session_cover": 0.8173,
    "session_best": 0.8078,
    "distance": -0.3301,
    "speaker": 2.6537,
    "asks": -0.6769,
    "after_question": -0.1228,
    "length": 0.3514,
    "number": 1.03,
    "place": -0.2609,
    "month": 3.9601,
    "similar": 0.4527,
    "similar_with_next": 0.196,
}
