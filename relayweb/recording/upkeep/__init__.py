"""What is done to a record afterwards: prune, check, reprice."""
