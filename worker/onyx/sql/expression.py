"""An expression of SQL as a question about each row of a batch: true or false, null is false."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from onyx.errors import UserError
from onyx.sql.batches import Failed, computed
from onyx.sql.engine import TABLE, Engine
from onyx.sql.grammar import ROW, Refused
from onyx.sql.statement import read_statement

_BEFORE = f"select * from {TABLE} where\n"  # noqa: S608 (only the parser gets it)


class Expression:
    """A condition about one row."""

    def __init__(self, text: str) -> None:
        """Raises UserError: it is no expression about one row, or DuckDB is not installed."""
        self._engine = Engine()
        try:
            self._statement = read_statement(_BEFORE + text, self._engine, len(_BEFORE))
        except Refused as refused:
            raise UserError(f"sql {refused}") from None

    def answers(self, batch: pa.RecordBatch) -> tuple[np.ndarray, Failed]:
        """For each row whether it holds; and the rows that it fails for.

        Raises:
            UserFunctionError: it does not fit the columns of the batch.
        """
        numbers = pa.array(np.arange(batch.num_rows, dtype=np.int64))
        made, failed = computed(self._engine, self._statement, batch.append_column(ROW, numbers))
        holds = np.zeros(batch.num_rows, dtype=np.bool_)
        holds[made.column(0).to_numpy()] = True
        return holds, failed
