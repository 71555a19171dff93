"""What is kept, and how: contents by digest, blocks of chunk marks, the word index, and the tables they stand in."""
