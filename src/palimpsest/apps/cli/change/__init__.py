"""Commands that change what the model sees."""
