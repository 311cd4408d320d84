"""The plan and its parts: stages, sampling rules, algorithms, domains, guarantees."""
