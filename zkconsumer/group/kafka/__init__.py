"""``group.protocol=kafka``: a broker coordinates, a member assigns; and what ``consumer`` shares with it."""
