"""The command `pal replay`: its sessions, its checks, and the tables and the curve that it prints."""
