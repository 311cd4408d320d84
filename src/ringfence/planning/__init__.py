"""From what somebody asks for to a plan: which algorithm, how many rounds, how much noise. No record is looked at."""
