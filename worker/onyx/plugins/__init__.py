"""Input and output plugins, and the protocol that a user's own follow."""
