"""The learned weights of the features: the output of `pal memory eval locomo-open.json --fit`."""

from collections.abc import Mapping
from typing import Final

# SHA-256 of the data that the weights were fitted on: the main questions of conversations 26, 30, 41, 42, 43 and 44 of LoCoMo. Scores on it
# are not held out. A weight is the change of a score for one unit of its feature; `features.py` says what each feature is.
TRAINED_ON: Final = "be63ebc41010b5c70656f89f8d3dd3033aec0b3f697bbb4f5c6602505cff8038"
WEIGHTS: Final[Mapping[str, float]] = {
    "match": -0.1443,
    "cover": 0.5598,
    "rarest": 0.4901,
    "cover_with_previous": 1.2282,
    "window": 1.9321,
    "pairs": 1.6587,
    "previous": -0.6678,
    "following": -0.1889,
    "second_previous": 1.0651,
    "second_following": 0.4771,
    "previous_if_asked": 1.9142,
    "session_match": 1.7057,
    "session_cover": 0.7816,
    "session_best": 1.0905,
    "distance": -0.3153,
    "speaker": 2.6799,
    "asks": -0.5021,
    "after_question": 0.0438,
    "length": 0.2434,
    "number": 0.8453,
    "place": -0.2804,
    "month": 4.2344,
}
# The same with embeddings: `pal memory eval locomo-open.json --fit --embed`, wordllama 0.4.0.
SIMILAR_WEIGHTS: Final[Mapping[str, float]] = {
    "match": -0.528,
    "cover": 0.5933,
    "rarest": 0.2422,
    "cover_with_previous": 1.2202,
    "window": 0.9302,
    "pairs": 1.7303,
    "previous": -1.1981,
    "following": -0.0175,
    "second_previous": 0.9137,
    "second_following": 0.403,
    "previous_if_asked": 1.8815,
    "session_match": 1.6433,
    "session_cover": 0.6028,
    "session_best": 0.8618,
    "distance": -0.3384,
    "speaker": 2.7061,
    "asks": -0.5989,
    "after_question": -0.1051,
    "length": 0.3893,
    "number": 0.9719,
    "place": -0.2237,
    "month": 4.1055,
    "similar": 0.5863,
}
