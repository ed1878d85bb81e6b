"""What manifests may say, and what follows from that: parsing, rules, CRDs, reference pages.

`job/`, `cluster` and `declaration` are the values; their fields are the keys of manifests, which
`keys/` reads and describes. `parsing/` turns text into a value, or into all problems at once with
the rules of `rules/`. `crd/` and `reference/` are derived from the keys. The other modules look at
a job: its workflow, the functions that it names, its canonical form.
"""
