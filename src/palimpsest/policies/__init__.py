"""Policies that edit the view, and the limits, background jobs and profiles that go with them."""
