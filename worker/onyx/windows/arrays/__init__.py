"""States of many groups in arrays: a row a group, and no Python object a group."""
