"""Makes the typed modules of the builder from what the model and the plugins declare."""
