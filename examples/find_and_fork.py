"""Find a word in all sessions, go on from that very place in a new session, and leave the old one as it was."""

from palimpsest.core.events import ModelReplied, UserSaid
from palimpsest.core.items import Text
from palimpsest.stores.home import Home


def main() -> None:
    home = Home.in_memory()
    for topic in ("parsers", "palimpsests", "printers"):
        with home.new(title=f"About {topic}") as log:
            log.append(UserSaid((Text(f"Tell me about {topic}."),)))
            log.append(ModelReplied((Text(f"There is much to say about {topic}.", "assistant"),)))
            log.append(UserSaid((Text("Thank you."),)))

    with home.index() as index:
        index.refresh()
        (hit,) = index.search("palimpsests", kind="assistant")
    print(f"found in item {hit.item}: {hit.snippet}")

    with home.open(hit.session, write=False) as old, home.fork(old, hit.seq) as new:
        new.append(UserSaid((Text("Say it in one word."),)))
        print("the new session:", [item.id for item in new.view.items])
        print("the old session:", [item.id for item in old.view.items])
    print(len(home.store.sessions()), "sessions")


if __name__ == "__main__":
    main()
