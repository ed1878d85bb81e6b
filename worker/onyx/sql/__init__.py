"""SQL over the columns of a batch: what a text may say, and how it is run.

A task with `sql` has a text instead of a function, and a condition may have one as its predicate.
Each row of a batch is a segment with a lineage of its own, and which rows come together in a batch
changes from run to run. So a text may say what is made of each row and which rows go on, and
nothing about several rows at once.
"""
