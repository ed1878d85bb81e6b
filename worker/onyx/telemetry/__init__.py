"""What a worker tells about itself: metrics, logs and health."""
