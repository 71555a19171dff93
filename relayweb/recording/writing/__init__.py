"""The one writer: batches of lines, each one transaction; and telling anew what contradictions put in doubt."""
