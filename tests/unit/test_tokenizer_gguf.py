"""Tokenizers from GGUF metadata: the default model against reference ids, SentencePiece against itself."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from default_model import default_model_file
from pagurid.errors import ModelLoadError
from pagurid.tokenizer.gguf import tokenizer_from_gguf
from pagurid.tokenizer.pre_tokenizers import pre_tokenizer_named
from pagurid.weights.gguf_file import GgufFile
from tiny_models import SPECIAL_TOKENS, tiny_tokenizer

if TYPE_CHECKING:
    from pagurid.tokenizer import Tokenizer

VECTORS = Path(__file__).parent.parent / "vectors" / "smollm2_token_ids.jsonl"


@pytest.fixture(scope="module")
def smollm2() -> Tokenizer:
    file = default_model_file()
    return tokenizer_from_gguf(GgufFile(file).metadata, vocab_size=49152, file=str(file))


@pytest.fixture(scope="module")
def vectors() -> list[dict[str, Any]]:
    return [json.loads(line) for line in VECTORS.read_text(encoding="utf-8").splitlines()]


def test_reference_ids_of_the_default_model(smollm2: Tokenizer, vectors: list[dict[str, Any]]) -> None:
    """All rows of the reference, special tokens parsed or not."""
    assert len(vectors) == 304
    wrong = [
        row
        for row in vectors
        if smollm2.encode(row["text"], parse_special=row["parse_special"]) != row["ids"]
    ]
    assert wrong == []


def test_bytes_of_the_reference_ids_are_the_texts(smollm2: Tokenizer, vectors: list[dict[str, Any]]) -> None:
    """The detokeniser's table gives every text back."""
    table = smollm2.vocabulary_data().token_bytes
    for row in vectors:
        assert b"".join(table[token_id] for token_id in row["ids"]).decode() == row["text"]


def test_metadata_of_the_default_model(smollm2: Tokenizer) -> None:
    """Special tokens, ends (D33) and no BOS before a text."""
    assert smollm2.bos_token_id == 1
    assert smollm2.eos_token_ids == {0, 2}
    assert smollm2.special_tokens["eos_token"] == "<|im_end|>"
    assert smollm2.vocabulary_data().special_token_ids == list(range(17))
    assert smollm2.encode("Hello", add_special_tokens=True) == smollm2.encode("Hello")


@pytest.mark.parametrize(
    ("name", "text", "pieces"),
    [
        ("smollm", "it's 1234 o'clock", ["it", "'s", " ", "1", "2", "3", "4", " o", "'", "clock"]),
        ("gpt-2", "it's 1234 o'clock", ["it", "'s", " 1234", " o", "'", "clock"]),
        ("gpt-2", "IT'S  x\n\n y", ["IT", "'", "S", " ", " x", "\n\n", " y"]),
        ("llama-bpe", "IT'S 1234567", ["IT", "'S", " ", "123", "456", "7"]),
        ("llama-bpe", "a(b) !!\n\nc", ["a", "(b", ")", " !!\n\n", "c"]),
        ("qwen2", "IT'S 123\tx", ["IT", "'S", " ", "1", "2", "3", "\tx"]),
        ("tekken", "camelCase 12 a/b", ["camel", "Case", " ", "1", "2", " a", "/b"]),
        ("default", "a-b 12345 c", ["a", "-", "b", " ", "123", "45", " c"]),
    ],
)
def test_pre_tokenizers_cut_as_the_models_were_trained(name: str, text: str, pieces: list[str]) -> None:
    """Each name of `tokenizer.ggml.pre` stands for one way to cut."""
    cut = pre_tokenizer_named(name, file="test").steps().pre_tokenize_str(text)
    assert [text[start:end] for _, (start, end) in cut] == pieces


def test_qwen2_composes_and_llama_ignores_merges() -> None:
    """Qwen2's tokenizer composes accents first; Llama 3's takes a whole word that is a token."""
    normalizer = pre_tokenizer_named("qwen2", file="test").normalizer()
    assert normalizer is not None
    assert normalizer.normalize_str("e\u0301") == "\u00e9"
    assert pre_tokenizer_named("smollm", file="test").normalizer() is None
    metadata = tiny_metadata(pre="llama-bpe")
    metadata["tokenizer.ggml.tokens"].append("zzzzz")
    metadata["tokenizer.ggml.token_type"].append(1)
    assert from_metadata(metadata).encode("zzzzz") == [len(metadata["tokenizer.ggml.tokens"]) - 1]
    metadata["tokenizer.ggml.pre"] = "smaug-bpe"
    assert len(from_metadata(metadata).encode("zzzzz")) == 5


def tiny_metadata(pre: str = "smollm") -> dict[str, Any]:
    content = json.loads(tiny_tokenizer().to_str())
    tokens = sorted(content["model"]["vocab"], key=content["model"]["vocab"].get)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token in SPECIAL_TOKENS else 1 for token in tokens],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in content["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }


def from_metadata(metadata: dict[str, Any]) -> Tokenizer:
    return tokenizer_from_gguf(metadata, vocab_size=512, file="test.gguf")


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, []),
        ({"tokenizer.ggml.add_bos_token": True}, ["bos"]),
        ({"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True}, ["bos", "eos"]),
        ({"tokenizer.ggml.pre": "llama-bpe"}, ["bos"]),
        ({"tokenizer.ggml.pre": "llama-bpe", "tokenizer.ggml.add_bos_token": False}, []),
    ],
)
def test_tokens_around_a_text(keys: dict[str, Any], expected: list[str]) -> None:
    """BOS and EOS as the metadata say, else as the kind of tokenizer does."""
    tokenizer = from_metadata(tiny_metadata() | keys)
    inner = tokenizer.encode("Hello")
    around = ([1] if "bos" in expected else []) + inner + ([2] if "eos" in expected else [])
    assert tokenizer.encode("Hello", add_special_tokens=True) == around


def test_chat_templates_of_the_metadata() -> None:
    """The default one and those with a name."""
    keys = {"tokenizer.chat_template": "plain", "tokenizer.chat_template.tool_use": "with tools"}
    tokenizer = from_metadata(tiny_metadata() | keys)
    messages = [{"role": "user", "content": "Hello"}]
    assert tokenizer.render_chat(messages) == "plain"
    assert tokenizer.render_chat(messages, tools=[{"type": "function"}]) == "with tools"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"tokenizer.ggml.model": "bert"},
            "tokenizer.ggml.model 'bert' is not supported; supported: gpt2",
        ),
        ({"tokenizer.ggml.pre": "klingon"}, "tokenizer.ggml.pre 'klingon' is not supported; supported: "),
        ({"tokenizer.ggml.tokens": []}, "has no tokenizer.ggml.tokens"),
        ({"tokenizer.ggml.merges": ["no such"]}, "tokenizer.ggml.merges do not suit the tokens"),
        ({"tokenizer.ggml.model": "llama"}, "tokenizer.ggml.scores must hold 450 values, one a token, got 0"),
    ],
)
def test_metadata_that_make_no_tokenizer(keys: dict[str, Any], message: str) -> None:
    """The file and the key are named."""
    with pytest.raises(ModelLoadError) as caught:
        from_metadata(tiny_metadata() | keys)
    assert message in str(caught.value)
    assert str(caught.value).startswith("test.gguf")


@pytest.fixture(scope="module")
def processor() -> Any:
    """A real SentencePiece BPE model with byte fallback, trained in a blink."""
    spm = pytest.importorskip("sentencepiece")
    corpus = ["The hermit crab moves into a shell that another has vacated, as the tide comes in."] * 20
    corpus += ["What is the capital of France? Paris is the capital of France."] * 20
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus),
        model_writer=model,
        model_type="bpe",
        vocab_size=400,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        user_defined_symbols=["<think>"],
        minloglevel=2,
    )
    return spm.SentencePieceProcessor(model_proto=model.getvalue())


def sentencepiece_metadata(processor: Any) -> dict[str, Any]:
    ids = range(processor.vocab_size())
    kinds = [
        2
        if processor.is_unknown(token_id)
        else 3
        if processor.is_control(token_id)
        else 6
        if processor.is_byte(token_id)
        else 4
        if processor.id_to_piece(token_id) == "<think>"
        else 1
        for token_id in ids
    ]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [processor.id_to_piece(token_id) for token_id in ids],
        "tokenizer.ggml.scores": [processor.get_score(token_id) for token_id in ids],
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.bos_token_id": processor.bos_id(),
        "tokenizer.ggml.eos_token_id": processor.eos_id(),
        "tokenizer.ggml.unknown_token_id": processor.unk_id(),
    }


@pytest.mark.parametrize(
    "text",
    [
        "The capital of the hermit crab",
        "What is  the   tide? ",
        " leading space",
        "naïve 日本語 🦀\nnew\tline",
        "shellshellshell vacatedmoves",
        "x",
    ],
)
def test_sentencepiece_ids(processor: Any, text: str) -> None:
    """`llama` kind: merges rebuilt from scores give the library's ids, byte fallback and ▁ in front."""
    tokenizer = from_metadata(sentencepiece_metadata(processor))
    ids = tokenizer.encode(text)
    assert ids == processor.encode(text)
    assert tokenizer.encode(text, add_special_tokens=True) == [processor.bos_id(), *ids]
    data = tokenizer.vocabulary_data()
    assert data.strip_leading_space
    assert b"".join(data.token_bytes[token_id] for token_id in ids).decode() == " " + text


def test_sentencepiece_without_the_space_in_front(processor: Any) -> None:
    """`add_space_prefix` false: no ▁ is put in front, none is stripped."""
    metadata = sentencepiece_metadata(processor) | {"tokenizer.ggml.add_space_prefix": False}
    tokenizer = from_metadata(metadata)
    pieces = [metadata["tokenizer.ggml.tokens"][token_id] for token_id in tokenizer.encode("the tide")]
    assert not pieces[0].startswith("▁")
    assert not tokenizer.vocabulary_data().strip_leading_space


def test_sentencepiece_user_defined_tokens(processor: Any) -> None:
    """User-defined pieces are matched in the text and are not special."""
    tokenizer = from_metadata(sentencepiece_metadata(processor))
    token_id = processor.piece_to_id("<think>")
    assert token_id in tokenizer.encode("the <think> tide")
    assert token_id in tokenizer.encode("the <think> tide", parse_special=False)
    assert token_id not in tokenizer.vocabulary_data().special_token_ids
