"""Policies that edit the view, and the budgets, prompts and result limiters that profiles combine with them."""
