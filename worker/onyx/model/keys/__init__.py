"""Keys of manifests: kinds of values, and sections of keys that read, write and describe them."""
