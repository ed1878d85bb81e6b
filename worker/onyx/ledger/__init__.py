"""Acking: lineage ids, the XOR ledger, what an input has pending, and its frontier. All pure."""
