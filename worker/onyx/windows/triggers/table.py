"""Which class a trigger is: built-in ones by the name in the manifest, the user's own otherwise.

What else is known of one stands in its row of `model.kinds`, which has the same names.
"""

from __future__ import annotations

from collections.abc import Mapping

from onyx.windows.triggers.punctuation import PunctuationTrigger
from onyx.windows.triggers.segment import SegmentTrigger
from onyx.windows.triggers.timer import TimerTrigger
from onyx.windows.triggers.trigger import Trigger, TriggerDeclaration
from onyx.windows.triggers.user import UserTrigger
from onyx.windows.triggers.watermark import PercentileWatermarkTrigger, WatermarkTrigger

BUILT_IN: Mapping[str, type[Trigger]] = {
    "percentile-watermark": PercentileWatermarkTrigger,
    "punctuation": PunctuationTrigger,
    "segment": SegmentTrigger,
    "timer": TimerTrigger,
    "watermark": WatermarkTrigger,
}


def compile_trigger(declaration: TriggerDeclaration) -> Trigger:
    """
    Raises:
        UserError: a function of the user is missing or of the wrong kind.
    """
    return BUILT_IN.get(declaration.trigger.type, UserTrigger)(declaration)
