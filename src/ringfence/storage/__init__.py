"""How documents are kept on a disk, whatever they say: databases, chains of entries, growing files, private files."""
