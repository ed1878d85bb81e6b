"""The phases of a task: one table, and one module for what each part of it does."""
