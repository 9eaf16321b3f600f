"""Two edits, the second resting on the first: undoing the first says so, takes both back, and the bytes are the same again."""

from palimpsest.core.events import ModelReplied, UserSaid, ViewEdited
from palimpsest.core.items import Fold, Keep, Mask, Put, Text
from palimpsest.core.undo import plan_undo, undo
from palimpsest.stores.home import Home
from palimpsest.wire.encode import encode
from palimpsest.wire.models import card


def main() -> None:
    model = card("gpt-5")
    log = Home.in_memory().new(model=model.name)
    for number in range(1, 4):
        log.append(UserSaid((Text(f"question {number}"),)))
        log.append(ModelReplied((Text(f"answer {number}", "assistant"),)))
    before = encode(log.view, model)

    summary = Put("summary", Text("Two questions were answered."))
    fold = log.append(ViewEdited((Fold("1.0", "4.0", (summary, Keep("3.0"))),), by="example", why="the beginning is settled"))
    log.append(ViewEdited((Mask((f"{fold.seq}.0.0",), "[earlier turns]"),), by="example", why="shorter still"))
    print("the model sees", log.view.ids, f"in {len(encode(log.view, model).body)} bytes instead of {len(before.body)}")

    plan = plan_undo(log, fold.seq)
    print(f"undoing event {fold.seq} takes back event {plan.resting[0]} too")
    undo(log, fold.seq, why="it was needed after all")
    after = encode(log.view, model)
    print("the same bytes again:", after.body == before.body)


if __name__ == "__main__":
    main()
