"""Parquet objects of a store as DataFrames of Spark, read and written by its executors."""
