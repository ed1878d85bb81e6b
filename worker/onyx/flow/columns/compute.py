"""Arrow's functions on columns, for modules that every worker process imports.

`pyarrow.compute` makes a function in Python of each of 300 kernels when it is imported. That took
50 ms of each start of a process, and jobs over dicts call none of them.
"""

from __future__ import annotations

from onyx.base.on_demand import ModuleOnDemand

pc = ModuleOnDemand("pyarrow.compute")
