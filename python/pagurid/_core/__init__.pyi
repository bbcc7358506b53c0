"""The Rust core. Everything here works without torch and without the rest of `pagurid`."""

from collections.abc import Mapping, Sequence
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

from pagurid._core import kernels as kernels
from pagurid._core.kernels import Tape

__version__: str

FinishReason = Literal["stop", "length", "cancelled", "error"]
SchedulingPolicy = Literal["fcfs", "priority", "fair"]
RequestState = Literal["queued", "prefill", "decode", "preempted", "finished"]

def error_table() -> list[tuple[str, int]]:
    """(wire code, HTTP status) of every error the core knows, in the order of `pagurid.errors.ERRORS`."""

@final
class SamplingParams:
    """How the tokens of one request are chosen; raises `InvalidRequest` naming the parameter."""

    def __new__(
        cls,
        *,
        n: int = 1,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        logit_bias: Mapping[int, float] | None = None,
        seed: int | None = None,
        stop: str | Sequence[str] | None = None,
        stop_token_ids: Sequence[int] | None = None,
        include_stop_str_in_output: bool = False,
        max_tokens: int | None = None,
        min_tokens: int = 0,
        ignore_eos: bool = False,
        logprobs: int | None = None,
        skip_special_tokens: bool = True,
    ) -> SamplingParams: ...
    @property
    def n(self) -> int:
        """Answers per request: 1 to 128."""
    @property
    def temperature(self) -> float:
        """0 is greedy."""
    @property
    def top_k(self) -> int:
        """Only the k most likely tokens; 0 and −1 are all."""
    @property
    def top_p(self) -> float:
        """Only the most likely tokens that have this much of the probability together."""
    @property
    def min_p(self) -> float:
        """Only tokens at least this likely, relative to the most likely one."""
    @property
    def repetition_penalty(self) -> float:
        """Of tokens in prompt or answer: positive logits are divided by it, negative ones multiplied."""
    @property
    def presence_penalty(self) -> float:
        """Taken from the logits of the answer's tokens: −2 to 2."""
    @property
    def frequency_penalty(self) -> float:
        """The same, times how often each came."""
    @property
    def logit_bias(self) -> dict[int, float]:
        """Added to the logits of these token ids."""
    @property
    def seed(self) -> int | None:
        """The same seed gives the same answer, alone and in any batch; negative ones as their 64 bits."""
    @property
    def stop(self) -> list[str]:
        """Texts that end the answer: at most 64 of at most 1,024 bytes."""
    @property
    def stop_token_ids(self) -> list[int]:
        """Tokens that end the answer: at most 256."""
    @property
    def include_stop_str_in_output(self) -> bool:
        """Whether the text keeps the stop string that ended it."""
    @property
    def max_tokens(self) -> int | None:
        """Longest answer; None is what the context leaves."""
    @property
    def min_tokens(self) -> int:
        """No end before: end-of-sequence and stop tokens are not chosen, stop strings are text."""
    @property
    def ignore_eos(self) -> bool:
        """Go on after end-of-sequence tokens."""
    @property
    def logprobs(self) -> int | None:
        """Report the chosen token's log-probability and this many of the most likely: 0 to 20."""
    @property
    def skip_special_tokens(self) -> bool:
        """Hide special tokens from the text."""

@final
class Vocabulary:
    """Token id → bytes, the whole knowledge the detokeniser needs.

    `token_bytes[i]` is what token i adds to the text (b"" for padding ids). With
    `strip_leading_space` one space at the very start of a sequence is dropped (SentencePiece).
    """

    def __new__(
        cls,
        token_bytes: Sequence[bytes],
        *,
        special_token_ids: Sequence[int] = ...,
        strip_leading_space: bool = False,
    ) -> Vocabulary: ...
    def __len__(self) -> int: ...
    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str: ...

@final
class Detokenizer:
    """Turns one sequence's token ids into text, piece by piece: only whole code points leave."""

    def __new__(
        cls,
        vocabulary: Vocabulary,
        *,
        stop: Sequence[str] = ...,
        include_stop_str_in_output: bool = False,
        skip_special_tokens: bool = True,
        continuation: bool = False,
    ) -> Detokenizer: ...
    def push(self, token_id: int) -> str: ...
    def finish(self) -> str: ...
    @property
    def stopped_by(self) -> str | None: ...

def sample(
    logits: NDArray[np.float32],
    params: SamplingParams,
    *,
    seed: int,
    position: int,
    sequence_index: int = 0,
    prompt_token_ids: Sequence[int] = ...,
    output_token_ids: Sequence[int] = ...,
) -> int:
    """One token from one row of logits `[vocab_size]`; a pure function of its arguments."""

@final
class BlockPool:
    """`num_blocks` KV blocks with reference counts and a prefix cache. Block 0 is never handed out.

    `hash_bits` below 128 force hash collisions, for tests of their handling.
    """

    def __new__(
        cls, num_blocks: int, block_size: int, *, enable_prefix_caching: bool = True, hash_bits: int = 128
    ) -> BlockPool: ...
    @property
    def num_blocks(self) -> int: ...
    @property
    def block_size(self) -> int: ...
    @property
    def num_usable_blocks(self) -> int:
        """blocks that can be handed out at all: all but block 0"""
    @property
    def num_free_blocks(self) -> int:
        """blocks that hold nothing"""
    @property
    def num_cached_blocks(self) -> int:
        """blocks without an owner that a lookup can still hit"""
    @property
    def num_used_blocks(self) -> int:
        """blocks with an owner"""
    def allocate(self, count: int = 1) -> list[int] | None:
        """Blocks with one owner each, evicting cached ones if need be; None, and none taken, if too few."""
    def share(self, block_ids: Sequence[int]) -> None:
        """One more owner for each of these blocks, which must have one."""
    def free(self, block_ids: Sequence[int]) -> None:
        """One owner less for each of a sequence's blocks, in its order: the tail is evicted first."""
    def references(self, block_id: int) -> int:
        """Owners of a block, the prefix cache not counted."""
    def lookup(self, token_ids: Sequence[int]) -> list[int]:
        """The cached blocks of the longest known prefix of these tokens, with one more owner each."""
    def publish(self, block_ids: Sequence[int], token_ids: Sequence[int]) -> list[int]:
        """Makes the full blocks of a sequence hittable; `block_ids` are its blocks, computed and owned.

        Returns the sequence's blocks from now on: a block that the cache already held under another number is
        exchanged for it, and the owner's reference goes along."""
    def check_invariants(self) -> None:
        """Raises InternalError naming the invariant that does not hold."""

@final
class SchedulerConfig:
    """Sizes and limits of a scheduler; raises `InvalidRequest` naming the field.

    `prefix_hash_bits` below 128 force hash collisions, for tests of their handling.
    """

    def __new__(
        cls,
        *,
        num_blocks: int,
        block_size: int = 16,
        max_model_len: int,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        vocab_size: int,
        eos_token_ids: Sequence[int] = ...,
        max_queued_requests: int = 1024,
        scheduling_policy: SchedulingPolicy = "fcfs",
        priority_ageing_ms: float = 10_000.0,
        step_time_target_ms: float | None = None,
        max_queue_wait_ms: float | None = None,
        preemption_victim: Literal["least_waste", "youngest"] = "least_waste",
        overlap_steps: bool = False,
        isolate_tenants: bool = False,
        enable_prefix_caching: bool = True,
        prefix_hash_bits: int = 128,
        kv_bytes_per_block: int = 0,
        cost_per_hour: float | None = None,
    ) -> SchedulerConfig: ...
    @property
    def num_blocks(self) -> int: ...
    @property
    def block_size(self) -> int: ...
    @property
    def max_model_len(self) -> int: ...
    @property
    def max_num_seqs(self) -> int: ...
    @property
    def max_num_batched_tokens(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def eos_token_ids(self) -> list[int]: ...
    @property
    def max_queued_requests(self) -> int: ...
    @property
    def scheduling_policy(self) -> SchedulingPolicy:
        """who is served first: by arrival; by priority, with ageing; the tenant that got least so far"""
    @property
    def priority_ageing_ms(self) -> float:
        """under the priority policy: so long a wait makes up for one level"""
    @property
    def step_time_target_ms(self) -> float | None:
        """prompts are cut into chunks small enough that a step with running answers takes about so long"""
    @property
    def max_queue_wait_ms(self) -> float | None:
        """a request that would probably wait longer is refused with `QueueFull`"""
    @property
    def preemption_victim(self) -> Literal["least_waste", "youngest"]:
        """who gives blocks back when they run out; `youngest` is for comparison"""
    @property
    def overlap_steps(self) -> bool:
        """whether `plan()` may be called while one step is open"""
    @property
    def isolate_tenants(self) -> bool:
        """whether tenants never share prefixes"""
    @property
    def enable_prefix_caching(self) -> bool: ...
    @property
    def prefix_hash_bits(self) -> int: ...
    @property
    def kv_bytes_per_block(self) -> int: ...
    @property
    def cost_per_hour(self) -> float | None: ...

@final
class StepPlan:
    """Views of the flat buffers that the last `plan()` filled: no copy, valid until the next `plan()`.

    Arrays have their full, fixed capacity and never move; the `num_*` say how much of them counts.
    Rows are tokens, grouped by sequence.
    """

    @property
    def num_tokens(self) -> int: ...
    @property
    def num_sequences(self) -> int: ...
    @property
    def num_logits_rows(self) -> int: ...
    @property
    def token_ids(self) -> NDArray[np.int32]:
        """[max_num_batched_tokens]; -1 - r: what logits row r of the step before this one will give"""
    @property
    def positions(self) -> NDArray[np.int32]:
        """[max_num_batched_tokens]"""
    @property
    def slot_mapping(self) -> NDArray[np.int64]:
        """[max_num_batched_tokens]: block * block_size + offset"""
    @property
    def query_start(self) -> NDArray[np.int32]:
        """[max_num_seqs + 1]: sequence s has rows query_start[s] .. query_start[s + 1]"""
    @property
    def context_lens(self) -> NDArray[np.int32]:
        """[max_num_seqs]: tokens in the KV cache after this step"""
    @property
    def block_tables(self) -> NDArray[np.int32]:
        """[max_num_seqs, max_blocks_per_sequence]"""
    @property
    def logits_rows(self) -> NDArray[np.int32]:
        """[max_num_seqs]: rows whose logits are needed, ascending; one for several sequences is repeated"""
    @property
    def num_block_copies(self) -> int: ...
    @property
    def block_copies(self) -> NDArray[np.int32]:
        """[max_num_seqs, 2]: (from, to), blocks to copy before the step runs; read all before writing any"""

@final
class TokenLogprobs:
    """Of one chosen token: raw model log-probabilities (before temperature and filters), finite."""

    @property
    def token_id(self) -> int: ...
    @property
    def logprob(self) -> float: ...
    @property
    def top(self) -> list[tuple[int, float]]:
        """the `logprobs` most likely tokens, best first"""

@final
class RequestMetrics:
    """The figures of one finished request, all its sequences. Times in ms, None where nothing happened."""

    @property
    def prompt_tokens(self) -> int: ...
    @property
    def cached_tokens(self) -> int: ...
    @property
    def completion_tokens(self) -> int: ...
    @property
    def queue_ms(self) -> float:
        """arrival → first scheduled"""
    @property
    def prefill_ms(self) -> float | None:
        """first scheduled → first token"""
    @property
    def ttft_ms(self) -> float | None:
        """arrival → first token"""
    @property
    def decode_ms(self) -> float | None:
        """first token → last token"""
    @property
    def total_ms(self) -> float:
        """arrival → end"""
    @property
    def inter_token_p50_ms(self) -> float | None: ...
    @property
    def inter_token_p99_ms(self) -> float | None: ...
    @property
    def tokens_per_second(self) -> float | None:
        """completion tokens over the time from first scheduled to the end"""
    @property
    def preemptions(self) -> int: ...
    @property
    def recomputed_tokens(self) -> int:
        """tokens that had to be computed again after a preemption"""
    @property
    def kv_cache_peak_bytes(self) -> int:
        """the most KV memory its sequences held at once; what they share counts for each"""
    @property
    def busy_ms(self) -> float:
        """this request's share of the steps' time, by the tokens it had in each"""
    @property
    def cost(self) -> float | None:
        """busy time × cost_per_hour; None without --cost-per-hour"""
    @property
    def cost_per_1k_tokens(self) -> float | None:
        """cost over prompt + completion tokens, × 1000"""

@final
class OutputDelta:
    """What one sequence of a request has gained since the last take: text, tokens, perhaps its end."""

    @property
    def request_id(self) -> int: ...
    @property
    def index(self) -> int:
        """which of the request's n sequences"""
    @property
    def text(self) -> str: ...
    @property
    def token_ids(self) -> list[int]: ...
    @property
    def logprobs(self) -> list[TokenLogprobs] | None: ...
    @property
    def completion_tokens(self) -> int:
        """of this sequence, so far"""
    @property
    def finish_reason(self) -> FinishReason | None:
        """set on the sequence's last delta"""
    @property
    def stop_reason(self) -> int | str | None:
        """the request's stop token id or stop string that ended it; None for an end-of-sequence token"""
    @property
    def error(self) -> str | None:
        """with finish_reason "error": what happened"""
    @property
    def metrics(self) -> RequestMetrics | None:
        """set on the request's very last delta"""

@final
class RequestProgress:
    @property
    def state(self) -> RequestState: ...
    @property
    def position(self) -> int | None:
        """in the queue, from 0; None unless it waits"""
    @property
    def wait_ms_estimate(self) -> int | None:
        """how long it will probably wait; None unless it waits, or while there is no experience yet"""
    @property
    def prefill_done_tokens(self) -> int: ...
    @property
    def prefill_total_tokens(self) -> int: ...
    @property
    def cached_tokens(self) -> int | None:
        """None until admitted"""

@final
class SchedulerStats:
    """The scheduler's figures of one moment: as of its last step, the queue's as of now."""

    @property
    def num_running(self) -> int:
        """sequences that hold blocks"""
    @property
    def num_waiting(self) -> int:
        """sequences that wait for their first or next step"""
    @property
    def total_blocks(self) -> int:
        """blocks that can be handed out: free + cached + used"""
    @property
    def free_blocks(self) -> int: ...
    @property
    def cached_blocks(self) -> int: ...
    @property
    def used_blocks(self) -> int: ...
    @property
    def kv_cache_used_bytes(self) -> int: ...
    @property
    def kv_cache_usage(self) -> float:
        """used of total blocks, 0..1"""
    @property
    def steps(self) -> int:
        """steps that ended well"""
    @property
    def prompt_tokens(self) -> int:
        """of admitted requests"""
    @property
    def completion_tokens(self) -> int: ...
    @property
    def cached_tokens(self) -> int:
        """prompt tokens found in the prefix cache"""
    @property
    def prefix_cache_queries_tokens(self) -> int:
        """prompt tokens looked up in the prefix cache"""
    @property
    def preemptions(self) -> int: ...
    @property
    def recomputed_tokens(self) -> int:
        """tokens that had to be computed again after that"""
    @property
    def requests_finished(self) -> dict[FinishReason, int]:
        """by the reason of the sequence that ended last"""
    @property
    def failed_steps(self) -> int: ...
    @property
    def consecutive_failed_steps(self) -> int:
        """since the last good one"""
    @property
    def busy_s(self) -> float:
        """time in steps, from `plan` to the end of `commit`"""
    @property
    def attributed_busy_s(self) -> float:
        """of this, what is in some request's `busy_ms`"""
    @property
    def last_step_tokens(self) -> int: ...
    @property
    def last_step_ms(self) -> float: ...
    @property
    def uptime_s(self) -> float: ...

@final
class Scheduler:
    """Queue, blocks, plan, sampling, detokenising and outputs of one engine.

    Threads: `submit`, `cancel`, `release`, `progress`, `stats`, `wake`, `close` from any thread;
    `wait_for_work`, `plan`, `sample`, `commit`, `abort_step`, `check_invariants` from the one engine thread
    (a second one gets an `InternalError`); `take_ready` and `take_output` from one consumer.
    What takes long gives up the GIL.
    """

    def __new__(cls, config: SchedulerConfig, vocabulary: Vocabulary | None = None) -> Scheduler: ...
    @property
    def config(self) -> SchedulerConfig: ...
    @property
    def step_plan(self) -> StepPlan:
        """What the last `plan()` that returned True has filled."""
    def submit(
        self,
        prompt_token_ids: Sequence[int] | NDArray[np.int32] | NDArray[np.int64],
        params: SamplingParams,
        *,
        priority: int = 0,
        tenant: str | None = None,
        cache_salt: str | None = None,
        age_ms: float = 0.0,
    ) -> int:
        """Validates every limit and queues the request; returns its id.

        `priority`: smaller is served first, under the priority policy.
        `tenant`: whose it is; tenants get equal parts under the fair policy.
        `cache_salt`: prefixes are shared only with requests of the same salt.
        `age_ms`: how long ago it arrived at the door.
        Raises InvalidRequest, ContextLengthExceeded, QueueFull, Overloaded."""
    def max_tokens_for(self, prompt_tokens: int, params: SamplingParams) -> int:
        """The most completion tokens a sequence of such a request can get (max_tokens, or what is left)."""
    def cancel(self, request_id: int) -> None:
        """Idempotent; blocks are free before the next step."""
    def release(self, request_id: int) -> None:
        """Cancels the request if it is unfinished and drops all that it has given or will give.

        For a client that is gone: nothing is left to take, and nothing leaks."""
    def progress(self, request_id: int) -> RequestProgress | None: ...
    def stats(self) -> SchedulerStats: ...
    def has_unfinished_requests(self) -> bool: ...
    def wait_for_work(self, timeout_s: float) -> bool:
        """Parks until there is something to plan; False on timeout."""
    def wake(self) -> None:
        """Ends a `wait_for_work` early."""
    def plan(self) -> bool:
        """True if there is a step to run."""
    def sample(self, logits: NDArray[np.float32]) -> None:
        """[num_logits_rows, vocab_size], contiguous → the plan's sampled tokens"""
    def play(self, tape: Tape) -> None:
        """Computes the planned step on a tape and samples its tokens, all of it without the GIL."""
    def commit(self, sampled_token_ids: NDArray[np.int32] | None = None) -> None:
        """Ends the step with the tokens of `sample` or `play`, or with these ([num_logits_rows])."""
    def abort_step(self, message: str) -> None:
        """Ends the requests of the current step with `internal`."""
    def close(self) -> None:
        """Refuses further submits (Overloaded) and cancels nothing."""
    def has_ready(self) -> bool: ...
    def take_ready(self) -> list[int]:
        """Requests with something to take, each once."""
    def take_output(self, request_id: int) -> list[OutputDelta]:
        """All that is new, one delta per sequence at most."""
    def check_invariants(self, *, idle: bool = False) -> None:
        """Raises InternalError naming the invariant that does not hold."""
