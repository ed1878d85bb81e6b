"""The output `spark`: parts, the stage that runs over them, and its one result."""
