"""What people read: statements in plain words, and later figures and pages."""
