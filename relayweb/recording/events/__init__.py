"""One ATOF event: read, checked, masked."""
