"""How a Spark session is opened: masters, Spark Connect, settings, the modules of users."""
