"""The session of a terminal: opened, followed while another terminal has it, handed over, and chosen from a list."""
