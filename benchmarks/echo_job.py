"""The least that NVFlare can do, for comparison: a controller that broadcasts bytes, an executor that returns them."""

import json
import threading
import time
from pathlib import Path
from typing import Any

from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.executor import Executor
from nvflare.apis.impl.controller import Controller


class Echo(Executor):  # type: ignore[misc]  # nvflare ships no types
    def execute(self, task_name: str, shareable: Any, fl_ctx: Any, abort_signal: Any) -> Any:
        return shareable


class Rounds(Controller):  # type: ignore[misc]  # nvflare ships no types
    def __init__(self, rounds: int, length: int, out: str) -> None:
        super().__init__()
        self._rounds, self._length, self._out = rounds, length, out

    def start_controller(self, fl_ctx: Any) -> None:
        pass

    def stop_controller(self, fl_ctx: Any) -> None:
        pass

    def process_result_of_unknown_task(self, *_: Any, **__: Any) -> None:
        pass

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:
        from nvflare.apis.shareable import Shareable

        seconds = []
        for _ in range(self._rounds):
            begun, complete = time.monotonic(), threading.Event()
            heard: list[str] = []

            def received(client_task: ClientTask, fl_ctx: Any, heard: Any = heard, complete: Any = complete) -> None:
                heard.append(client_task.client.name)
                if len(heard) == 3:
                    complete.set()

            content = Shareable()
            content["content"] = b"x" * self._length
            self.broadcast(Task(name="round", data=content, result_received_cb=received), fl_ctx, min_responses=3)
            complete.wait(60)
            seconds.append(time.monotonic() - begun)
        part = Path(f"{self._out}.part")
        part.write_text(json.dumps(seconds))
        part.replace(self._out)
