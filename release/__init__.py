"""What is given to others: images, wheel, chart, bills of materials. See `make help`."""
