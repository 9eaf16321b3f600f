"""What requests and edits cost: bills, cache state, rent."""
