"""Programs that run in a pod of the cluster under test, such as clients that write down what they
have learned. They need Python alone."""
