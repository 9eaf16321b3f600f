"""Commands that replay, measure and demonstrate."""
