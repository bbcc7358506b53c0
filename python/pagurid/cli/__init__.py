"""The `pagurid` command."""
