"""The commands of `onyx`: each is the module of its name."""
