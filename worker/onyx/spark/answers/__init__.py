"""Answers to questions about windows by Spark, out of their files and without Spark."""
