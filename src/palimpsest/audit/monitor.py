"""Watches the cache reads of consecutive calls, and tells a drop that no edit explains."""

from palimpsest.core.edits import Fold, Mask
from palimpsest.core.events import Usage, ViewEdited
from palimpsest.core.situation import Watch

SHARE = 0.05
TOKENS = 2_000
# The policies whose masks change what is cached and who say so; folds and cached masks do whoever made them.
TELLING = frozenset({"clear_idle", "clear_dead", "supersede"})


def watch_edit(watch: Watch, edited: ViewEdited) -> Watch:
    """After an edit: a fold, a mask for idleness or a cached mask makes the next drop an expected one."""
    told = edited.moment == "idle" or edited.by in TELLING
    masks = (edit for edit in edited.edits if isinstance(edit, Mask))
    folds = any(isinstance(edit, Fold) for edit in edited.edits)
    if folds or any(told or mask.form == "cached" for mask in masks):
        return Watch(watch.read, expected=True, dropped=watch.dropped)
    return watch


def watch_reply(watch: Watch, usage: Usage) -> Watch:
    """After a reply: a drop of more than 5 % and 2,000 tokens is told, unless it was expected; then the base line starts anew."""
    if not usage.prompt:
        return Watch(watch.read, watch.expected)
    before = watch.read
    drop = 0 if before is None else before - usage.cache_read
    if before is None or drop <= max(TOKENS, SHARE * before):
        return Watch(usage.cache_read, watch.expected)
    return Watch(usage.cache_read, dropped=0 if watch.expected else drop)
