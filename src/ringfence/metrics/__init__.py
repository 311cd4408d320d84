"""What answers to an evaluation say: figures with intervals that cover sampling and noise. No record comes here."""
