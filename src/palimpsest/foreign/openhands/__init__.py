"""Reads sessions of OpenHands."""
