"""Windows, triggers and refinements: from batches to state changes and firings, pure."""
