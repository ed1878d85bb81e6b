"""Programs that run in a pod of the cluster under test (`Kube.tool`): clients that write down what
they have learned, and what looks at files and pages that only pods reach. They need Python, and
what the image of the workers has."""
