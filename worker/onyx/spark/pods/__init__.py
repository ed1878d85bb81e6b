"""What the pods of Spark run on Kubernetes: a Connect server, and its executors."""
