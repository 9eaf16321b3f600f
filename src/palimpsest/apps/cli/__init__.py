"""The place of the command in 0.2, which stands in configuration files of other programs; it goes with 0.5."""
