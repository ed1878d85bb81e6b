"""The input plugin `spark`: a DataFrame as a source of segments."""
