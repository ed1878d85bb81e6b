"""What a peer reads before it is ready: state logs, and the state of an upgraded job."""
