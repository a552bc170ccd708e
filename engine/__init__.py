"""The serving engine: requests, scheduler, KV blocks, model, step loop.

Importing this package is cheap: no torch. `engine.build.build_engine` loads a model and gives an `Engine`.
"""

import kernels.threads  # noqa: F401  # before torch, whose threads read their settings when it is loaded
from engine.config import EngineConfig
from engine.records import Iteration
from engine.request import FinishReason, Request, RequestStatus
from engine.sampling_params import SamplingParams
from engine.view import EngineView

__all__ = ["EngineConfig", "EngineView", "FinishReason", "Iteration", "Request", "RequestStatus", "SamplingParams"]
