"""Sessions of OpenHands."""
