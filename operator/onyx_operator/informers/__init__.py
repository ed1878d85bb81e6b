"""Informers: what the API server has of our kinds, listed and watched namespace by namespace."""
