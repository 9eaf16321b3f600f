"""What a session shows of notes: which of them may be recalled, their texts, the cards, and what replies cite."""
