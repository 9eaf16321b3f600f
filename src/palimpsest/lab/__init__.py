"""Sessions made up, replayed, priced and measured."""
