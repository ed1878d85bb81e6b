"""The ZooKeeper servers that Onyx starts: processes, configuration, formation of ensembles."""
