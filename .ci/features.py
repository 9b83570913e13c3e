"""Lists `package feature` for each feature of each package of the workspace, and `package` for it without any.

Reads `cargo metadata --no-deps` on standard input. `default` is left out: it is the sum of others.
"""

import json
import sys

for package in sorted(json.load(sys.stdin)["packages"], key=lambda package: package["name"]):
    features = sorted(set(package["features"]) - {"default"})
    if features:
        print(package["name"])
    for feature in features:
        print(package["name"], feature)
