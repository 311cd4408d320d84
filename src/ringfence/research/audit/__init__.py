"""What the audit publishes: known attacks on real pictures, and a second accountant beside the first."""
