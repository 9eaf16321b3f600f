"""The continuation test: a real model goes on from a recorded session under the views of several profiles."""
