"""The console: what a cluster does, and has done, as pages for a browser."""
