"""The readers of JSON formats, in no order of rank: the surest one gets a file."""

from __future__ import annotations

from traces.readers.bailian import Bailian
from traces.readers.base import Reader
from traces.readers.dynamo import Dynamo
from traces.readers.lengths_json import LengthsJson
from traces.readers.llmservingsim import LLMServingSim
from traces.readers.lmcache import LMCache
from traces.readers.mooncake import Mooncake
from traces.readers.mooncake_plus import AgentBlocks, MooncakePlus
from traces.readers.openai import OpenAIBatch, OpenAIChat
from traces.readers.otel import OTel
from traces.readers.ragpulse import RagPulse
from traces.readers.recorded import Recorded
from traces.readers.sglang_log import SGLangLog
from traces.readers.sharegpt import Conversations, ShareGPT
from traces.readers.tracelab_rounds import TraceLabRounds
from traces.readers.vllm_custom import VllmCustom
from traces.readers.vllm_recorded import VllmRecorded
from traces.readers.vtc_json import VtcJson
from traces.readers.weka import Weka

JSON_READERS: tuple[Reader, ...] = (
    Recorded(),
    Mooncake(),
    Bailian(),
    MooncakePlus(),
    AgentBlocks(),
    RagPulse(),
    LLMServingSim(),
    LengthsJson(),
    ShareGPT(),
    Conversations(),
    VllmCustom(),
    OpenAIBatch(),
    OpenAIChat(),
    LMCache(),
    OTel(),
    VllmRecorded(),
    Dynamo(),
    Weka(),
    TraceLabRounds(),
    SGLangLog(),
    VtcJson(),
)
