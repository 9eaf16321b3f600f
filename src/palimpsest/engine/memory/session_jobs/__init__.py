"""The jobs of memory beside the turns of a session, what they may spend, and how what they propose becomes notes."""
