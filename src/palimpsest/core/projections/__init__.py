"""Projections: state that is computed from the events of a log and updated with each new event."""
