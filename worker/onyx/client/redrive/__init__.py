"""Dead letters go into a job again: letters as they lie, which went in before, and how they go."""
