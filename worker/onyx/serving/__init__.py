"""HTTP for whoever reaches a port: a server that bounds what strangers may hold."""
