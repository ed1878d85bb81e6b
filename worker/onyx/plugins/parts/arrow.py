"""Arrow's readers and writers of files, for modules that every job with files imports.

A file of JSON or CSV whose rows are dicts needs none of them: a third of the time that a worker
takes from its fork to its first segment.
"""

from __future__ import annotations

from onyx.base.on_demand import ModuleOnDemand

pcsv = ModuleOnDemand("pyarrow.csv")
pq = ModuleOnDemand("pyarrow.parquet")
