"""The learned weights of the features: the output of `pal memory eval locomo-open.json --fit`."""

from collections.abc import Mapping
from typing import Final

# SHA-256 of the data that the weights were fitted on: the main questions of conversations 26, 30, 41, 42, 43 and 44 of LoCoMo. Scores on it
# are not held out. A weight is the change of a score for one unit of its feature; `features.py` says what each feature is.
TRAINED_ON: Final = "be63ebc41010b5c70656f89f8d3dd3033aec0b3f697bbb4f5c6602505cff8038"
WEIGHTS: Final[Mapping[str, float]] = {
    "match": -0.1492,
    "cover": 0.567,
    "rarest": 0.4976,
    "cover_with_previous": 1.2348,
    "window": 1.9286,
    "pairs": 1.6577,
    "previous": -0.6688,
    "following": -0.1827,
    "second_previous": 1.0635,
    "second_following": 0.4764,
    "previous_if_asked": 1.9168,
    "session_match": 1.6933,
    "session_cover": 0.7921,
    "session_best": 1.0962,
    "distance": -0.3134,
    "speaker": 2.6768,
    "asks": -0.5029,
    "after_question": 0.0459,
    "length": 0.2498,
    "number": 0.8439,
    "place": -0.2833,
    "month": 4.2319,
}
# The same with embeddings: `pal memory eval locomo-open.json --fit --embed`, wordllama 0.4.0.
SIMILAR_WEIGHTS: Final[Mapping[str, float]] = {
    "match": -0.5027,
    "cover": 0.6268,
    "rarest": 0.2357,
    "cover_with_previous": 1.2227,
    "window": 0.9058,
    "pairs": 1.7157,
    "previous": -1.1844,
    "following": -0.0197,
    "second_previous": 0.9121,
    "second_following": 0.4057,
    "previous_if_asked": 1.9081,
    "session_match": 1.6056,
    "session_cover": 0.6686,
    "session_best": 0.8437,
    "distance": -0.3352,
    "speaker": 2.6955,
    "asks": -0.5966,
    "after_question": -0.1066,
    "length": 0.3753,
    "number": 0.9469,
    "place": -0.2233,
    "month": 4.1105,
    "similar": 0.575,
}
