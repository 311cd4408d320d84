"""`ringfence reproduce league`: public tables in silos, untuned, beside what others do at the same epsilon."""
