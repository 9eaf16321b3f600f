"""Projections: state that follows from the events of a log, kept up to date as they are appended."""
