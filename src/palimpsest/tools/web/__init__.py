"""The tool that reads pages of the web, the addresses it may connect to, and HTML as text."""
