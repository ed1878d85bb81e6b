"""Two streams that meet by key and time: what is stored of each side, and which rows meet."""
