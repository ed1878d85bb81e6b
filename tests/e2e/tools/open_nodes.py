"""Which nodes of ZooKeeper are open to the account of this pod: `python open_nodes.py NODE...`."""

import os
import sys
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

user = os.environ["ONYX_ZOOKEEPER_AUTH_USER"]
password = Path(os.environ["ONYX_ZOOKEEPER_AUTH_PASSWORD_FILE"]).read_text()
shown = [("digest", f"{user}:{password}")]
client = KazooClient(os.environ["ONYX_ZOOKEEPER_ADDRESS"], auth_data=shown)
client.start()
for node in sys.argv[1:]:
    try:
        client.get_children(node)
        print("open")
    except NoAuthError:
        print("closed")
client.stop()
