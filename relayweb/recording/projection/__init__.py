"""Events into scopes: who hangs where, what they count, what became of them. Any order ends in the same rows."""
