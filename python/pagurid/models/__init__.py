"""The models: their numbers, their forward pass in torch over `pagurid.ops`, the KV cache they write."""

from pagurid.models.config import ModelConfig, RopeScaling
from pagurid.models.kv_cache import KvCache
from pagurid.models.llama import LlamaForCausalLM
from pagurid.models.step_inputs import StepInputs

__all__ = ["KvCache", "LlamaForCausalLM", "ModelConfig", "RopeScaling", "StepInputs"]
