"""The learned weights of the features: the output of `pal memory eval locomo-open.json --fit`."""

from collections.abc import Mapping
from typing import Final

# SHA-256 of the data that the weights were fitted on: the main questions of conversations 26, 30, 41, 42, 43 and 44 of LoCoMo. Scores on it
# are not held out. A weight is the change of a score for one unit of its feature; `features.py` says what each feature is.
TRAINED_ON: Final = "be63ebc41010b5c70656f89f8d3dd3033aec0b3f697bbb4f5c6602505cff8038"
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
    "match": -0.4924,
    "cover": 0.6029,
    "rarest": 0.2266,
    "cover_with_previous": 1.2548,
    "window": 0.9176,
    "pairs": 1.7035,
    "previous": -1.2013,
    "following": -0.0196,
    "second_previous": 0.9232,
    "second_following": 0.419,
    "previous_if_asked": 1.8979,
    "session_match": 1.5944,
    "session_cover": 0.6746,
    "session_best": 0.833,
    "distance": -0.325,
    "speaker": 2.6966,
    "asks": -0.5946,
    "after_question": -0.1144,
    "length": 0.3799,
    "number": 0.9929,
    "place": -0.2269,
    "month": 4.0971,
    "similar": 0.5839,
}
