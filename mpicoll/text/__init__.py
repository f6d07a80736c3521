"""Plain text: sizes, names and numbers as people write and read them, and files written whole."""
