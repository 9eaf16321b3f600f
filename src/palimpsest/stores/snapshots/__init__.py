"""Snapshots of project folders in repositories of our own, which never touch the user's."""
