"""Requests of clients over HTTP: what every worker serves for inputs with `plugin: http`."""
