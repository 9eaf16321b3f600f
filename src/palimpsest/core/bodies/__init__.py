"""The bodies of events, by what they are about."""
