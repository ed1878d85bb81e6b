"""Files that are staged by one writer, published whole, and taken away from a writer that is dead.

interface       what staging promises
folder          by renames out of a folder of the writer, which is also its fence
s3              by uploads, which anybody can abort who knows their ids
output_folder   the folder of an output: the same one until the job ends
staged_file     a file whose bytes wait in memory until the system has taken them
"""
