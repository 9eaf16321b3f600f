"""What can be read off a text by its shape: sentences, numbers, names and dates."""
