"""What a session cost, by model and by part, and what it would have cost on other cards."""

from msgspec.structs import replace

from palimpsest.core.events import CallStarted, ModelReplied, Usage, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.undo import rewind
from palimpsest.stores.home import Home
from palimpsest.wire.models import FREE, PriceBook


def main() -> None:
    log = Home.in_memory().new(model="claude-sonnet-4-5")
    for turn in range(3):
        log.append(UserSaid((Text(f"turn {turn}"),)))
        call = log.append(CallStarted("claude-sonnet-4-5", "anthropic"))
        usage = Usage(input=100, cache_read=20_000 * turn, cache_write=20_000, output=500)
        log.append(ModelReplied((Text("done", "assistant"),), call=call.seq, usage=usage))
    rewind(log, 3)  # money that was spent on a branch stays spent

    book, spent = PriceBook(), FREE
    for spending in log.ledger.spendings:
        bill = book.bill(spending)
        if bill is None:
            raise SystemExit(f"no price is known for {spending.model}")
        spent += bill
    for part, dollars in spent.parts().items():
        print(f"{part:>16} ${dollars:.4f}")
    for name in ("claude-opus-4-5", "claude-haiku-4-5"):
        usd = book.usd(replace(spending, model=name, asked=name) for spending in log.ledger.spendings)
        print(f"on {name}: ${usd:.4f}")
    print(f"total of {log.ledger.calls} calls: ${spent.total:.4f}")


if __name__ == "__main__":
    main()
