"""What is shown of recalled turns: the sentences that state most, with corrected and older values behind what replaced them."""
