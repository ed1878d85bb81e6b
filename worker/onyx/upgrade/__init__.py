"""What a job carries over from the old job that it upgrades. Pure."""
