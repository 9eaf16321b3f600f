"""What past sessions teach without a model: units to recall, errors that were fixed, and facts that repeat."""
