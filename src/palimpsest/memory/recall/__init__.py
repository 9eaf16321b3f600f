"""Recall without a model: an index of notes and turns in memory, candidates by rare words, ranking by learned weights, a token budget."""
