"""Admission: the webhooks, which refuse what is wrong and mark who has changed a job."""
