"""An index of recall as bytes, and changes of it beside adding."""
