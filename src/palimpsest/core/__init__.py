"""Events, items, edits and views, the log with its projections, token counts, secrets, and ports."""
