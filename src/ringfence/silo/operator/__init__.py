"""What a silo's operator reads and decides."""
