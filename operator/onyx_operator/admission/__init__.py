"""Admission: the validating webhook."""
