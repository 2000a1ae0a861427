"""What the routes share."""

import threading
from typing import cast

from octavo.config import SchedulingPolicy, ServerConfig
from octavo.engine.client import EngineClient
from octavo.server.serving import INLINE_CHARS, Serving
from octavo.text.assets import TextAssets


async def test_long_texts_leave_the_event_loop() -> None:
    unused_client, unused_assets = cast(EngineClient, None), cast(TextAssets, None)
    serving = Serving(unused_client, unused_assets, ServerConfig(), SchedulingPolicy.FCFS)
    loop_thread = threading.get_ident()
    assert await serving.off_loop(INLINE_CHARS, threading.get_ident) == loop_thread
    assert await serving.off_loop(INLINE_CHARS + 1, threading.get_ident) != loop_thread
    serving.close()
