"""Run Python blocks one after the other with shared names: a JSON line in for each, a JSON line out."""

import contextlib
import io
import json
import os
import sys
import traceback
from typing import Any


def main() -> None:
    """Answer until standard input ends."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for line in sys.stdin:
        asked = json.loads(line)
        os.chdir(asked["folder"])
        printed, status = io.StringIO(), 0
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            try:
                exec(compile(asked["code"], "block", "exec"), names)
            except Exception:
                status = 1
                traceback.print_exc()
        print(json.dumps({"status": status, "printed": printed.getvalue()}), flush=True)


if __name__ == "__main__":
    main()
