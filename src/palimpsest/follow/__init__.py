"""Follows message lists of other programs: a log beside each list, and the list that should be sent."""
