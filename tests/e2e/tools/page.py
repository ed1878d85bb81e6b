"""Print status and text of a page: `python page.py ADDRESS TOKEN`, which may be empty."""

import sys
import urllib.error
import urllib.request

address, token = sys.argv[1:]
headers = {"Authorization": f"Bearer {token}"} if token else {}
try:
    answer = urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=10)
except urllib.error.HTTPError as error:
    answer = error
print(answer.status)
print(answer.read().decode())
