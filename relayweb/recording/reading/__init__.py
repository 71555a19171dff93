"""What pages, API and exports ask the record."""
