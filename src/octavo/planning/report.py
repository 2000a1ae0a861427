"""A page of one run that needs nothing but a browser: figures, curves, and the memory to step through."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from octavo.planning.figures import Figures
from octavo.planning.memory_map import MemoryMap
from octavo.planning.recorder import Recorder

_PLACE = "/*DATA*/null"


def html_report(
    title: str,
    settings: Mapping[str, Any],
    figures: Figures,
    recorder: Recorder,
    memory_map: MemoryMap | None,
) -> str:
    """The page."""
    moments = recorder.timeline.moments
    times = [moment.time_s for moment in moments]
    data = {
        "title": title,
        "settings": {name: str(value) for name, value in settings.items()},
        "figures": asdict(figures),
        "timeline": {
            "t": [round(time, 4) for time in times],
            "running": [moment.num_requests for moment in moments],
            "open": recorder.open_at(times),
            "memory": [list(moment.memory[:5]) for moment in moments],
        },
        "map": None if memory_map is None else memory_map.as_json(),
    }
    # "</" would end the script that holds it, whatever a name in it says.
    text = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")
    template = files("octavo.planning").joinpath("report.html").read_text()
    return template.replace(_PLACE, text)
