"""Hooks: functions of a library and commands of the user that run at moments of a session."""
